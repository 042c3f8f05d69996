// Package reconcile has the command that compares a list of the payment service with what Payhook has. It
// changes nothing.
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// state is what Payhook knows of an id. An id of several events has the first of these states that one of its
// events has.
type state string

const (
	missing   state = "missing"   // Payhook has nothing
	damaged   state = "damaged"   // its item in the ledger does not say its state, or not readably
	parked    state = "parked"    // in the ledger, or a delivery is open: a person must decide
	pending   state = "pending"   // accepted; redrive publishes it
	dismissed state = "dismissed" // parked, and a person decided that it is not published
	replayed  state = "replayed"  // its delivery was replayed and accepted; the ledger no longer remembers it
	older     state = "older"     // from before the time that the ledger remembers
	published state = "published"
)

var states = []state{missing, damaged, parked, pending, dismissed, replayed, older, published}

func (s state) rank() int { return slices.Index(states, s) }

// identifier is what the ids of a list are.
type identifier struct {
	name   string // in sections 2.2, 2.3 and 2.5 of the interface
	isUUID bool
	of     func(payment.Identifiers) []string // nil for the ids that the ledger has
}

var identifiers = []identifier{
	{name: "eventId", isUUID: true},
	{name: "deliveryId", isUUID: true},
	{name: "paymentRequestId", of: func(i payment.Identifiers) []string { return []string{i.PaymentRequestID} }},
	{name: "paymentEndToEndId", of: func(i payment.Identifiers) []string { return []string{i.PaymentEndToEndID} }},
	{name: "svcUniquePaymentId", of: func(i payment.Identifiers) []string { return []string{i.SvcUniquePaymentID} }},
	{name: "svcPostingIds", of: func(i payment.Identifiers) []string { return i.SvcPostingIDs }},
}

// hides reports whether an event with a deviation at that path has an unreadable identifier.
func (i identifier) hides(path string) bool {
	field := "eventData.identifiers." + i.name
	return strings.HasPrefix(field, path) || strings.HasPrefix(path, field)
}

// options are the flags.
type options struct {
	format
	from, to time.Time // of the evidence
	all      bool
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o, by := options{}, ""
	var names []string
	for _, i := range identifiers {
		names = append(names, i.name)
	}
	cmd := &cobra.Command{
		Use:   "reconcile FILE|-",
		Short: "Compare a list of the service with what Payhook has",
		Long: `Compares a list of ids from the payment service with what Payhook has. The list has one
id a line, or is CSV with a header line and --column, or JSON lines; - is standard
input. It prints each id that is not published, and counts the others.

  missing    Payhook has nothing. Ask the service to send it again
  damaged    the ledger has it without a readable state: payhook event ID
  parked     a person must decide: payhook parked list --event ID
  pending    accepted; redrive publishes it
  dismissed  parked, and a person decided that it is not published
  replayed   a person replayed it, and the ledger no longer remembers it
  older      the ledger no longer remembers it, but its record or --time-column is
             older than deduplicationWindow
  published  on the bus

The ledger knows an event by its eventId, and by the first deliveryId that brought it.
The other identifiers are only in the evidence (setting evidence): give --from. It reads
every record whose signed timestamp (with mtls alone, whose latest event) is from there
on. With --from, it also finds a deliveryId whose events came with another delivery
first, and events that the ledger no longer remembers.

It reads about 1,000 items a second, so that the ledger is not slowed down. For a
deliveryId, it reads the whole ledger.

A deliveryId of which only a part was recorded has the state of that part: compare
eventIds.

Status 1: at least one is missing or damaged, or a record of the evidence was not read.`,
		Example: `  payhook reconcile events.txt
  payhook reconcile statement.csv --column event_id --time-column sent_at
  payhook reconcile list.jsonl --by paymentEndToEndId --from 2026-01-01`,
		Args: cli.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.by = identifiers[slices.Index(names, cmp.Or(by, names[0]))]
			if err := evidence.CheckHours(o.from, o.to); err != nil {
				return err
			}
			if o.by.of != nil && o.from.IsZero() {
				return cli.Usage("%s is only in the evidence: give the first hour with --from", o.by.name)
			}
			list, err := o.open(p, args[0])
			if err != nil {
				return err
			}
			d, err := p.Connect(cmd.Context(), t)
			if err == nil && d.EvidenceBucket == "" && !o.from.IsZero() {
				err = cli.Usage("--from reads the evidence, and the stack stores none: the setting evidence is off")
			}
			if err != nil {
				return cli.Unreachable(err)
			}
			r := newRun(p, d, o)
			return r.reconcile(cmd.Context(), list)
		},
	}
	f := cmd.Flags()
	cli.ChoiceVar(cmd, &by, "by", "what the ids are: the `name` of a field of the interface (default eventId)",
		names...)
	f.StringVar(&o.column, "column", "", "`name` of the column of a CSV file, or of the member of JSON lines")
	f.StringVar(&o.format.time, "time-column", "", "`name` of the column or member with the time or day of each")
	evidence.HoursVar(f, &o.from, &o.to)
	f.BoolVar(&o.all, "all", false, "print also what is published")
	return cmd
}

// open reads the list. The error is one of usage.
func (o options) open(p *cli.Program, name string) ([]entry, error) {
	from := p.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, cli.Usage("%w", err)
		}
		defer file.Close()
		from = file
	}
	list, repeated, err := o.read(from)
	if err != nil {
		return nil, cli.Usage("%s: %w", name, err)
	}
	if repeated > 0 {
		fmt.Fprintf(p.Err, "%s ignored\n", cli.Counted(repeated, "repeated id", "repeated ids"))
	}
	return list, nil
}

// run is one run of the command.
type run struct {
	*cli.Program
	options
	ledger interface {
		ledger.Getter
		// Each is as in [dynamodb.LedgerLister].
		Each(ctx context.Context, pause func() error, found func(ledger.Item)) error
	}
	store proof.Reader // the parking bucket
	// scan calls got with each record of the evidence.
	scan func(ctx context.Context, got func(r proof.Proof, storedAt time.Time, err error)) error
	// setting returns how long the ledger remembers an event that is published now.
	setting func(ctx context.Context) (time.Duration, error)
	// pause waits until the next call of DynamoDB may be made.
	pause func(ctx context.Context) error

	events  map[string][]string    // the eventIds of an id
	items   map[string]ledger.Item // by eventId
	longest time.Duration          // window, by the setting and the items
	times   map[string]time.Time   // of an id in the list, and of the first record of an event
	parked  map[string][]string    // names by the ids that they concern
	decided map[string]proof.Decision
	unread  int // records of the evidence
}

func newRun(p *cli.Program, d *deployment.Deployment, o options) *run {
	client := d.S3()
	next := time.NewTicker(pause)
	return &run{
		Program: p, options: o,
		ledger: dynamodb.NewLedgerLister(dynamodb.NewClient(d.AWS), d.LedgerTable),
		store:  s3.NewBucket(client, d.ParkingBucket),
		scan: func(ctx context.Context, got func(proof.Proof, time.Time, error)) error {
			to := cmp.Or(o.to, p.Now().Add(evidence.Ahead))
			return evidence.ScanHours(ctx, p, client, d.EvidenceBucket, o.from, to, got)
		},
		setting: func(ctx context.Context) (time.Duration, error) { return d.Duration(ctx, "deduplicationWindow") },
		pause: func(ctx context.Context) error {
			select {
			case <-next.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		events: map[string][]string{}, items: map[string]ledger.Item{}, times: map[string]time.Time{},
	}
}

const (
	atOnce = 100                    // items of one call of DynamoDB
	pause  = 100 * time.Millisecond // between two calls
)

// row is what is printed of an id.
type row struct {
	State  state    `json:"state"`
	ID     string   `json:"id"`
	Events []string `json:"eventIds,omitempty"` // if the id is not one itself
	Parked []string `json:"parked,omitempty"`   // the names of what is parked and open
}

func (r *run) reconcile(ctx context.Context, list []entry) error {
	if err := r.load(ctx, list); err != nil {
		return cli.Unreachable(err)
	}
	counts := map[state]int{}
	var rows []row
	for _, e := range list {
		made := r.row(e.id, r.Now().Add(-r.longest))
		counts[made.State]++
		if r.all || made.State != published || len(made.Parked) > 0 {
			rows = append(rows, made)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.State.rank(), b.State.rank()) })
	lines := cli.Rows{{"STATE", "ID", "EVENTS", "PARKED"}}
	for _, made := range rows {
		lines = append(lines, []any{made.State, cli.Plain(made.ID), strings.Join(made.Events, ","),
			strings.Join(made.Parked, ",")})
	}
	if err := cli.List(r.Program, rows, lines); err != nil {
		return err
	}
	var said strings.Builder
	said.WriteString(cli.Counted(len(list), "id", "ids"))
	for _, s := range states {
		fmt.Fprintf(&said, ", %d %s", counts[s], s)
	}
	fmt.Fprintln(r.Err, said.String())
	if counts[missing] > 0 {
		fmt.Fprintf(r.Err, "the ledger remembers %s, or less of what was published while deduplicationWindow was "+
			"shorter: what is older is missing too, unless --time-column or --from shows how old it is\n",
			cli.Readable(r.longest))
	}
	if counts[missing]+counts[damaged]+r.unread > 0 {
		return cli.ErrAttention
	}
	return nil
}

// load reads everything that is known of the ids.
func (r *run) load(ctx context.Context, list []entry) (err error) {
	if r.parked, err = proof.Concerned(ctx, r.store, r.Counter("parked delivery", "parked deliveries")); err != nil {
		return err
	}
	if r.decided, err = proof.Decisions(ctx, r.store); err != nil {
		return err
	}
	if r.longest, err = r.setting(ctx); err != nil {
		return err
	}
	wanted := make(map[string]bool, len(list))
	for _, e := range list {
		wanted[e.id], r.times[e.id] = true, e.at
	}
	if r.by.name == "deliveryId" {
		err = r.loadDeliveries(ctx, wanted)
	}
	if err == nil && !r.from.IsZero() {
		err = r.loadEvidence(ctx, wanted)
	}
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for id := range wanted {
		for _, event := range r.eventsOf(id) {
			ids[event] = true
		}
	}
	count := r.Counter("event", "events")
	for part := range slices.Chunk(slices.Sorted(maps.Keys(ids)), atOnce) {
		if err := r.pause(ctx); err != nil {
			return err
		}
		found, err := r.ledger.Get(ctx, part, false)
		if err != nil {
			return err
		}
		maps.Copy(r.items, found)
		// The setting may have been longer.
		for _, i := range found {
			if at := cmp.Or(i.PublishedAt, i.Decision.At, i.Due); !at.IsZero() && !i.ExpiresAt.IsZero() {
				r.longest = max(r.longest, i.ExpiresAt.Sub(at).Round(time.Minute))
			}
		}
		count(len(part))
	}
	return nil
}

// eventsOf returns the eventIds of an id.
func (r *run) eventsOf(id string) []string {
	if r.by.name == "eventId" {
		return []string{id}
	}
	return r.events[id]
}

// loadDeliveries finds the events of the deliveries that are wanted in the ledger.
func (r *run) loadDeliveries(ctx context.Context, wanted map[string]bool) error {
	count := r.Counter("item", "items")
	return r.ledger.Each(ctx, func() (err error) {
		for waited := 0; waited < dynamodb.PageUnits && err == nil; waited += atOnce {
			err = r.pause(ctx)
		}
		return err
	}, func(i ledger.Item) {
		count(1)
		r.add(wanted, strings.ToLower(i.DeliveryID), i.EventID)
	})
}

// add adds an event to an id that is wanted.
func (r *run) add(wanted map[string]bool, id, event string) {
	if wanted[id] && !slices.Contains(r.events[id], event) {
		r.events[id] = append(r.events[id], event)
	}
}

// loadEvidence finds the events of the ids that are wanted in the evidence.
func (r *run) loadEvidence(ctx context.Context, wanted map[string]bool) error {
	err := r.scan(ctx, func(record proof.Proof, storedAt time.Time, err error) {
		delivery, errDecode := payment.DecodeDelivery(record.Payload)
		if err != nil || errDecode != nil {
			r.unread++
			return
		}
		for _, raw := range delivery.Events {
			id := ledger.Key(raw.EventID)
			if at := r.times[id]; at.IsZero() || storedAt.Before(at) {
				r.times[id] = storedAt
			}
			r.add(wanted, strings.ToLower(delivery.DeliveryID), id)
			if r.by.of == nil {
				continue
			}
			event, err := payment.DecodeEvent(raw.Bytes)
			if err != nil || slices.ContainsFunc(event.Deviations, r.by.hides) {
				r.unread++
				continue
			}
			for _, of := range r.by.of(event.EventData.Identifiers) {
				r.add(wanted, of, id)
			}
		}
	})
	if r.unread > 0 {
		fmt.Fprintf(r.Err, "%s not read, or without a readable %s: payhook evidence verify\n",
			cli.Counted(r.unread, "record", "records"), r.by.name)
	}
	return err
}

// row says what is known of an id. The ledger remembers what was published after began.
func (r *run) row(id string, began time.Time) row {
	made := row{ID: id, State: r.stateOf(id, began)}
	made.Parked, _ = r.decisions(id)
	for n, event := range r.eventsOf(id) {
		if s := r.stateOf(event, began); n == 0 || s.rank() < made.State.rank() {
			made.State = s
		}
		if event != id {
			open, _ := r.decisions(event)
			made.Parked, made.Events = append(made.Parked, open...), append(made.Events, event)
		}
	}
	slices.Sort(made.Parked)
	made.Parked = slices.Compact(made.Parked)
	return made
}

// stateOf returns the state of an event, or of an id without known events.
func (r *run) stateOf(id string, began time.Time) state {
	item, known := r.items[id]
	open, decided := r.decisions(id)
	at := r.times[id]
	switch {
	case known && !slices.Contains(states, state(item.State)):
		return damaged
	case known:
		return state(item.State)
	case len(open) > 0:
		return parked
	case decided != "":
		return decided
	case !at.IsZero() && at.Before(began):
		return older
	}
	return missing
}

// decisions returns the names of what is parked and open about an id, and what was decided about its deliveries:
// replayed if one of them was, since that one was accepted.
func (r *run) decisions(id string) (open []string, decided state) {
	if r.items[id].State == ledger.Parked {
		open = append(open, id)
	}
	for _, name := range r.parked[id] {
		switch {
		case r.decided[name] == "":
			open = append(open, name)
		case decided != replayed:
			decided = state(r.decided[name])
		}
	}
	return open, decided
}
