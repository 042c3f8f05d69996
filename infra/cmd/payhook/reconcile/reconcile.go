// Package reconcile has the command that compares a list of the payment service with what Payhook has. It
// changes nothing.
//
// policy.json is the policy for whoever runs it. A test derives from this package what it must allow.
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

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

// state is what Payhook knows of an id. An id of several events has the first of these states that one of its
// events has.
type state string

const (
	missing   state = "missing"   // Payhook has nothing
	parked    state = "parked"    // open: a person must decide
	pending   state = "pending"   // accepted; redrive publishes it
	dismissed state = "dismissed" // parked, and a person decided that it needs no replay
	older     state = "older"     // from before the time that the ledger remembers
	published state = "published"
)

var states = []state{missing, parked, pending, dismissed, older, published}

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
  parked     a person must decide: payhook parked list --event ID
  pending    accepted; redrive publishes it
  dismissed  parked, and a person decided that it needs no replay
  older      the ledger no longer remembers it, but its record or --time-column is
             older than deduplicationWindow
  published  on the bus

The ledger knows an event by its eventId, and by the first deliveryId that brought it.
The other identifiers are only in the evidence (setting evidence): give --from. It reads
every record from there on. With --from, it also finds a deliveryId whose events came
with another delivery first, and events that the ledger no longer remembers.

It reads about 1,000 items a second, so that the ledger is not slowed down. For a
deliveryId, it reads the whole ledger.

Status 1: at least one is missing.`,
		Example: `  payhook reconcile events.txt
  payhook reconcile statement.csv --column event_id --time-column sent_at
  payhook reconcile list.jsonl --by paymentEndToEndId --from 2026-01-01`,
		Args: cli.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.by = identifiers[slices.Index(names, cmp.Or(by, names[0]))]
			if o.from.IsZero() && !o.to.IsZero() {
				return cli.Usage("--to needs --from")
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
	cli.ChoiceVar(cmd, &by, "by", "what the ids are: the `name` of a field of the interface (default eventId)", names...)
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
	ledger *ledger.Lister
	store  *parking.Store
	// scan calls got with each record of the evidence.
	scan func(ctx context.Context, got func(r records.Record, storedAt time.Time, err error)) error
	// pause waits until the next call of DynamoDB may be made.
	pause func(ctx context.Context) error

	events   map[string][]string    // the eventIds of an id
	items    map[string]ledger.Item // by eventId
	recorded map[string]time.Time   // when the evidence of an eventId was stored first
	parked   map[string][]string    // names by the ids that they concern
	decided  map[string]parking.State
	said     time.Time
}

func newRun(p *cli.Program, d *deployment.Deployment, o options) *run {
	client := d.S3()
	next := time.NewTicker(pause)
	return &run{
		Program: p, options: o,
		ledger: ledger.NewLister(dynamodb.NewFromConfig(d.AWS), d.LedgerTable),
		store:  parking.NewStore(client, d.ParkingBucket),
		scan: func(ctx context.Context, got func(records.Record, time.Time, error)) error {
			return evidence.ScanHours(ctx, p, client, d.EvidenceBucket, o.from, cmp.Or(o.to, p.Now()), got)
		},
		pause: func(ctx context.Context) error {
			select {
			case <-next.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		events: map[string][]string{}, items: map[string]ledger.Item{}, recorded: map[string]time.Time{}, said: p.Now(),
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
	Events []string `json:"eventIds,omitempty"` // if the id is none itself
	Parked []string `json:"parked,omitempty"`   // the names of what is parked and open
}

func (r *run) reconcile(ctx context.Context, list []entry) error {
	if err := r.load(ctx, list); err != nil {
		return cli.Unreachable(err)
	}
	counts, window := map[state]int{}, r.window()
	var rows []row
	for _, e := range list {
		made := r.row(e, window)
		counts[made.State]++
		if r.all || made.State != published || len(made.Parked) > 0 {
			rows = append(rows, made)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})
	if err := r.print(rows); err != nil {
		return err
	}
	var counted []string
	for _, s := range slices.Backward(states) {
		if counts[s] > 0 {
			counted = append(counted, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	fmt.Fprintf(r.Err, "%s: %s\n", cli.Counted(len(list), "id", "ids"), strings.Join(counted, ", "))
	if counts[missing] == 0 {
		return nil
	}
	if r.format.time == "" {
		fmt.Fprintf(r.Err, "the ledger remembers %s: what is older is missing too, unless --time-column or --from shows "+
			"how old it is\n", cli.Readable(window))
	}
	return cli.ErrAttention
}

func (r *run) print(rows []row) error {
	if r.JSON {
		for _, made := range rows {
			if err := r.PrintJSON(made); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		return nil
	}
	table := r.Table()
	fmt.Fprintln(table, "STATE\tID\tEVENTS\tPARKED")
	for _, made := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", made.State, cli.Plain(made.ID), strings.Join(made.Events, ","),
			strings.Join(made.Parked, ","))
	}
	return table.Flush()
}

// load reads everything that is known of the ids.
func (r *run) load(ctx context.Context, list []entry) (err error) {
	if r.parked, err = r.store.Concerned(ctx); err != nil {
		return err
	}
	if r.decided, err = r.store.States(ctx); err != nil {
		return err
	}
	wanted := make(map[string]bool, len(list))
	for _, e := range list {
		wanted[e.id] = true
	}
	switch r.by.name {
	case "eventId":
		for id := range wanted {
			r.events[id] = []string{id}
		}
	case "deliveryId":
		if err := r.loadDeliveries(ctx, wanted); err != nil {
			return err
		}
	}
	if !r.from.IsZero() {
		if err := r.loadEvidence(ctx, wanted); err != nil {
			return err
		}
	}
	var ids []string
	for _, all := range r.events {
		for _, id := range all {
			if _, known := r.items[id]; !known {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return r.loadEvents(ctx, slices.Compact(ids))
}

// loadDeliveries reads the items of the deliveries that are wanted.
func (r *run) loadDeliveries(ctx context.Context, wanted map[string]bool) error {
	n := 0
	return r.ledger.Each(ctx, func() error {
		for range ledger.PageUnits / atOnce {
			if err := r.pause(ctx); err != nil {
				return err
			}
		}
		r.say(n, "items read")
		return nil
	}, func(i ledger.Item) {
		n++
		if id := strings.ToLower(i.DeliveryID); wanted[id] {
			r.items[i.EventID] = i
			r.events[id] = append(r.events[id], i.EventID)
		}
	})
}

// loadEvidence reads the events of the ids that are wanted from the evidence.
func (r *run) loadEvidence(ctx context.Context, wanted map[string]bool) error {
	damaged := 0
	err := r.scan(ctx, func(record records.Record, storedAt time.Time, err error) {
		if err != nil {
			damaged++
			return
		}
		delivery, err := payment.DecodeDelivery(record.Payload)
		if err != nil {
			damaged++
			return
		}
		for _, raw := range delivery.Events {
			id := ledger.Key(raw.EventID)
			ids := []string{id}
			switch {
			case r.by.name == "deliveryId":
				ids = []string{strings.ToLower(delivery.DeliveryID)}
			case r.by.of != nil:
				event, err := payment.DecodeEvent(raw.Bytes)
				if err != nil {
					damaged++
					continue
				}
				ids = r.by.of(event.EventData.Identifiers)
			}
			for _, of := range ids {
				if !wanted[of] {
					continue
				}
				if !slices.Contains(r.events[of], id) {
					r.events[of] = append(r.events[of], id)
				}
				if at, known := r.recorded[id]; !known || storedAt.Before(at) {
					r.recorded[id] = storedAt
				}
			}
		}
	})
	if damaged > 0 {
		fmt.Fprintf(r.Err, "%s not read: payhook evidence verify\n",
			cli.Counted(damaged, "record could", "records could"))
	}
	return err
}

// loadEvents reads the items of events.
func (r *run) loadEvents(ctx context.Context, ids []string) error {
	n := 0
	for part := range slices.Chunk(ids, atOnce) {
		if err := r.pause(ctx); err != nil {
			return err
		}
		found, err := r.ledger.Find(ctx, part)
		if err != nil {
			return err
		}
		maps.Copy(r.items, found)
		n += len(part)
		r.say(n, fmt.Sprintf("of %d events looked up", len(ids)))
	}
	return nil
}

// say writes a number every three seconds.
func (r *run) say(n int, what string) {
	if now := r.Now(); now.Sub(r.said) > 3*time.Second {
		r.said = now
		fmt.Fprintln(r.Err, n, what)
	}
}

// window returns how long the ledger remembers an event: as long as those that were found.
func (r *run) window() time.Duration {
	for _, i := range r.items {
		if at := cmp.Or(i.PublishedAt, i.ParkedAt); !at.IsZero() && !i.ExpiresAt.IsZero() {
			return i.ExpiresAt.Sub(at).Round(time.Minute)
		}
	}
	window, _ := cli.ParseDuration(settings.Named("deduplicationWindow").Default)
	return window
}

// row says what is known of an id.
func (r *run) row(e entry, window time.Duration) row {
	made := row{State: published, ID: e.id}
	worse := func(s state) {
		if slices.Index(states, s) < slices.Index(states, made.State) {
			made.State = s
		}
	}
	began := r.Now().Add(-window)
	events := r.events[e.id]
	if r.by.name != "eventId" {
		made.Events = slices.Sorted(slices.Values(events))
	}
	open, decided := r.decisions(e.id)
	for _, id := range events {
		openEvent, decidedEvent := r.decisions(id)
		open, decided = append(open, openEvent...), decided || decidedEvent
		item, known := r.items[id]
		at := cmp.Or(r.recorded[id], e.at)
		switch {
		case known && item.Pending():
			worse(pending)
		case known && item.ParkedAt.IsZero():
		case len(openEvent) > 0:
			worse(parked)
		case decidedEvent:
			worse(dismissed)
		case known:
			worse(parked) // its object is no longer there
		case !at.IsZero() && at.Before(began):
			worse(older)
		default:
			worse(missing)
		}
	}
	slices.Sort(open)
	made.Parked = slices.Compact(open)
	if len(events) == 0 {
		switch {
		case len(open) > 0:
			made.State = parked
		case decided:
			made.State = dismissed
		case !e.at.IsZero() && e.at.Before(began):
			made.State = older
		default:
			made.State = missing
		}
	}
	return made
}

// decisions returns what is parked and open about an id, and whether something parked about it was dismissed.
func (r *run) decisions(id string) (open []string, wasDismissed bool) {
	for _, name := range r.parked[id] {
		switch r.decided[name] {
		case "":
			open = append(open, name)
		case parking.Dismissed:
			wasDismissed = true
		}
	}
	return open, wasDismissed
}
