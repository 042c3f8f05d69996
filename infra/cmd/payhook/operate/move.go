package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
)

func (p *program) moveCommand() *cobra.Command {
	var from string
	var yes bool
	cmd := &cobra.Command{
		Use:   "move --from BUS",
		Short: "Move the pending events of another bus to the bus of this stack",
		Long: `Moves events that are pending for another bus to the bus of this stack, with the redrive
function of this stack. Stacks can share a ledger, and redrive of a stack publishes only
the events of its own bus. So when a stack is deleted, nobody publishes what it left.

Only events that are due are moved: the others may be in use by the other stack. Redrive
of this stack publishes them in its next run. It shows what it will do, and asks.

Status 1: some are not due yet; repeat the command when they are.`,
		Example: "  payhook pending move --from payhook --stack PayhookNew",
		Args:    cli.Args(),
		RunE:    p.on(func(ctx context.Context, s *stack, _ []string) error { return p.move(ctx, s, from, yes) }),
	}
	cmd.Flags().StringVar(&from, "from", "",
		"the `bus` that the events belong to, as payhook pending shows it (required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

// move is what is moved from one bus to another.
type move struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	Pending int       `json:"pending"` // before
	Moved   int       `json:"moved"`
	NotDue  int       `json:"notDue"`         // before
	Until   time.Time `json:"until,omitzero"` // when the last of these is due
}

func (p *program) move(ctx context.Context, d *stack, from string, yes bool) error {
	m := move{From: from, To: d.Bus}
	if from == "" || from == m.To {
		return cli.Usage("--from must name another bus than that of the stack, %s; %s shows them", m.To,
			p.hint("pending"))
	}
	index, err := d.ledger.Backlog(ctx)
	if err != nil {
		return err
	}
	for _, item := range index {
		if item.Bus() != from {
			continue
		}
		m.Pending++
		if item.Err != nil {
			fmt.Fprintf(p.Err, "%s: %v\n", item.EventID, item.Err)
		}
		if item.Due.After(p.Now()) {
			m.NotDue, m.Until = m.NotDue+1, item.Due // they are in the order of Due
		}
	}
	left := m.NotDue < m.Pending
	if left && !yes {
		question := fmt.Sprintf("Move %d of the %d that are pending for %s to %s in %s? Consumers of %[3]s do not "+
			"get them.",
			m.Pending-m.NotDue, m.Pending, cli.Plain(from), m.To, d.Name)
		if err := p.Confirm(ctx, question); err != nil {
			return err
		}
	}
	for left {
		a, err := d.redrive(ctx, request{MoveFrom: from})
		if err != nil {
			fmt.Fprintf(p.Err, "%s moved\n", cli.Counted(m.Moved, "event is", "events are"))
			return err
		}
		m.Moved, left = m.Moved+a.Moved, a.Left
	}
	return attention(p.Show(m, "from", m.From, "to", m.To, "pending", m.Pending, "moved", m.Moved,
		"notDue", m.NotDue, "until", m.Until), m.Moved < m.Pending)
}
