package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
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

Status 1: some are not due yet; repeat the command when they are.

With --json, one document: from, to, pending, moved, notDue, until.`,
		Example: "  payhook pending move --from payhook --stack PayhookNew",
		Args:    cli.Args(),
		RunE:    p.on(func(ctx context.Context, s *stack, _ []string) error { return p.move(ctx, s, from, yes) }),
	}
	cmd.Flags().StringVar(
		&from,
		"from",
		"",
		"the bus that the events belong to, as payhook pending shows it (required)",
	)
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
		return cli.Usage("--from must name another bus than that of the stack, %s; payhook pending shows them", m.To)
	}
	index, err := d.ledger.Backlog(ctx, func(int) {})
	if err != nil {
		return err
	}
	m.count(index, p.Now())
	if m.Pending == 0 {
		return p.printMove(m)
	}
	fmt.Fprintf(p.Err, "%s pending for the bus %s", cli.Counted(m.Pending, "event is", "events are"), cli.Plain(from))
	if m.NotDue > 0 {
		fmt.Fprintf(p.Err, "; not due yet: %d, the last until %s", m.NotDue, cli.Stamp(m.Until))
	}
	fmt.Fprintf(p.Err, ". Consumers of %s do not get what is moved\n", cli.Plain(from))
	if !yes && m.NotDue < m.Pending {
		question := fmt.Sprintf("Move %d that are due to %s in %s?", m.Pending-m.NotDue, m.To, d.Name)
		if err := p.Confirm(ctx, question); err != nil {
			return err
		}
	}
	for left := m.NotDue < m.Pending; left; {
		a, err := d.redrive(ctx, request{MoveFrom: from})
		if err != nil {
			fmt.Fprintf(p.Err, "%s moved\n", cli.Counted(m.Moved, "event is", "events are"))
			return err
		}
		m.Moved, left = m.Moved+a.Moved, a.Left
	}
	return p.printMove(m)
}

// count counts what is pending for the bus.
func (m *move) count(index []ledger.Item, now time.Time) {
	for _, item := range index {
		if item.Bus() != m.From {
			continue
		}
		m.Pending++
		if item.Due.After(now) {
			m.NotDue, m.Until = m.NotDue+1, item.Due // they are in the order of Due
		}
	}
}

func (p *program) printMove(m move) error {
	err := p.print(m, func(t cli.Fields) {
		if m.Pending == 0 {
			fmt.Fprintf(t, "nothing is pending for the bus %s\n", cli.Plain(m.From))
			return
		}
		fmt.Fprintf(t, "%s moved to %s; redrive publishes what is moved in its next run\n",
			cli.Counted(m.Moved, "event is", "events are"), m.To)
	})
	return attention(err, m.Moved < m.Pending)
}
