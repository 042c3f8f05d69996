package commands

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// finding is what Payhook knows of an id.
type finding string

const (
	missing   finding = "missing"   // Payhook has nothing
	damaged   finding = "damaged"   // its item in the ledger does not say its state, or not readably
	parked    finding = "parked"    // in the ledger, or a delivery is open: a person must decide
	pending   finding = "pending"   // accepted; redrive publishes it
	dismissed finding = "dismissed" // parked, and a person decided that it is not published
	replayed  finding = "replayed"  // its delivery was replayed and accepted; the ledger no longer remembers it
	older     finding = "older"     // from before the time that the ledger remembers
	published finding = "published"
)

// findings are in the order of their urgency. An id of several events has the first of those that its events have.
var findings = []finding{missing, damaged, parked, pending, dismissed, replayed, older, published}

func byUrgency(a, b finding) int {
	return cmp.Compare(slices.Index(findings, a), slices.Index(findings, b))
}

// identifier is what the ids of a list are.
type identifier struct {
	name string                             // in sections 2.2, 2.3 and 2.5 of the interface
	of   func(payment.Identifiers) []string // nil for those that every delivery must have, which are UUIDs
}

const eventID = "eventId"

var identifiers = []identifier{
	{eventID, nil}, {"deliveryId", nil},
	{"paymentRequestId", func(i payment.Identifiers) []string { return []string{i.PaymentRequestID} }},
	{"paymentEndToEndId", func(i payment.Identifiers) []string { return []string{i.PaymentEndToEndID} }},
	{"svcUniquePaymentId", func(i payment.Identifiers) []string { return []string{i.SvcUniquePaymentID} }},
	{"svcPostingIds", func(i payment.Identifiers) []string { return i.SvcPostingIDs }},
}

// hides reports whether an event with a deviation at that path has an unreadable identifier.
func (i identifier) hides(path string) bool {
	field := "eventData.identifiers." + i.name
	return strings.HasPrefix(field, path) || strings.HasPrefix(path, field)
}

func (p *program) reconcileCommand() *cobra.Command {
	r, by := reconciler{p: p.Program}, ""
	var names []string
	for _, i := range identifiers {
		names = append(names, i.name)
	}
	cmd := &cobra.Command{
		Use:   "reconcile FILE|-",
		Short: "Compare a list of the service with what Payhook has",
		Args: cobra.MatchAll(cli.OneArg("FILE"), func(_ *cobra.Command, args []string) (err error) {
			r.by = identifiers[slices.Index(names, cmp.Or(by, names[0]))]
			if r.by.name != eventID && r.in.From.IsZero() {
				return fmt.Errorf("%s is only in the evidence: give the first hour with --from", r.by.name)
			}
			if r.list, err = r.open(args[0]); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return r.in.Check(p.Now())
		}),
		RunE: p.on(func(ctx context.Context, s *connected, _ []string) error {
			if s.EvidenceBucket == "" && !r.in.From.IsZero() {
				return cli.Usage("--from reads the evidence, and the stack stores none: the setting evidence is off")
			}
			r.s = s
			if err := r.load(ctx); err != nil {
				return err
			}
			return r.print()
		}),
	}
	f := cmd.Flags()
	cli.ChoiceVar(cmd, &by, "by", "what the ids are: the `name` of a field of the interface (default eventId)",
		names...)
	f.StringVar(&r.column, "column", "", "`name` of the column of a CSV file")
	r.in.Flags(f)
	f.BoolVar(&r.all, "all", false, "print also what is published")
	return cmd
}

type reconciler struct {
	p      *cli.Program
	s      *connected // set when the list is read
	by     identifier
	column string // the name of that with the ids; "" for none

	in   Section // the zero value for none
	all  bool
	list []string

	events  map[string][]string    // the eventIds of each id in the list
	items   map[string]ledger.Item // by eventId
	window  time.Duration          // the longest, by the setting and the items
	times   map[string]time.Time   // of the first proof of an event
	parked  map[string][]string    // names by the ids that they concern
	decided map[string]proof.Decision
	unread  int  // proofs of the evidence
	damaged bool // a parked delivery
}

// pause is between two calls of DynamoDB.
const pause = 100 * time.Millisecond

type row struct {
	Finding finding  `json:"finding"`
	ID      string   `json:"id"`
	Events  []string `json:"eventIds,omitempty"` // if the id is not one itself
	Parked  []string `json:"parked,omitempty"`   // the names of what is parked and open
}

// print prints what is known of the ids. The error is [cli.ErrAttention] if not all is well.
func (r *reconciler) print() error {
	counts := map[finding]int{}
	var rows []row
	for _, id := range r.list {
		made := r.row(id)
		counts[made.Finding]++
		if r.all || made.Finding != published || len(made.Parked) > 0 {
			rows = append(rows, made)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return byUrgency(a.Finding, b.Finding) })
	if err := cli.List(r.p, rows); err != nil {
		return err
	}
	said := []string{cli.Counted(len(r.list), "id", "ids")}
	for _, s := range findings {
		said = append(said, fmt.Sprint(counts[s], " ", s))
	}
	fmt.Fprintln(r.p.Err, strings.Join(said, ", "))
	if counts[missing] > 0 {
		fmt.Fprintf(r.p.Err, "the ledger remembers %s, or less of what was published while deduplicationWindow was "+
			"shorter: what is older is missing too, unless --from shows how old it is\n",
			cli.Readable(r.window))
	}
	return attention(nil, counts[missing]+counts[damaged]+r.unread > 0 || r.damaged)
}

// load reads everything that is known of the ids.
func (r *reconciler) load(ctx context.Context) (err error) {
	r.parked, err = proof.Concerned(ctx, r.s.parking, r.p.Counter("parked delivery", "parked deliveries"))
	if errors.Is(err, proof.ErrDamaged) { // what is missing can be in it
		fmt.Fprintln(r.p.Err, lambdaruntime.Cause(err))
		r.damaged = true
	} else if err != nil {
		return err
	}
	if r.decided, err = proof.Decisions(ctx, r.s.parking); err != nil {
		return err
	}
	conf, err := r.s.deployed(ctx, "webhook")
	if err != nil {
		return err
	}
	r.window = conf.DeduplicationWindow // of an event that is published now
	r.events, r.times = map[string][]string{}, map[string]time.Time{}
	for _, id := range r.list {
		r.events[id] = nil
		if r.by.name == eventID {
			r.events[id] = []string{id}
		}
	}
	if !r.in.From.IsZero() {
		if err = r.loadEvidence(ctx); err != nil {
			return err
		}
	}
	return r.loadItems(ctx)
}

func (r *reconciler) add(id, event string) {
	if events, inList := r.events[id]; inList && !slices.Contains(events, event) {
		r.events[id] = append(events, event)
	}
}

func (r *reconciler) loadEvidence(ctx context.Context) error {
	count := r.p.Counter("proof", "proofs")
	err := Scan(ctx, r.s.S3(), r.s.EvidenceBucket, r.in, func(o Object) {
		count(1)
		if o.Deleted {
			return
		}
		delivery, err := payment.DecodeDelivery(o.Proof.Payload)
		if o.Err != nil || err != nil {
			r.unread++
			return
		}
		for _, raw := range delivery.Events {
			id := ledger.Key(raw.EventID)
			if at := r.times[id]; at.IsZero() || o.StoredAt.Before(at) {
				r.times[id] = o.StoredAt
			}
			r.add(strings.ToLower(delivery.DeliveryID), id)
			if r.by.of == nil {
				continue
			}
			event, err := payment.DecodeEvent(raw.Bytes)
			if err != nil || slices.ContainsFunc(event.Deviations, r.by.hides) {
				r.unread++
				continue
			}
			for _, of := range r.by.of(event.EventData.Identifiers) {
				r.add(of, id)
			}
		}
	})
	if r.unread > 0 {
		fmt.Fprintf(r.p.Err, "%s not read, or without a readable %s: payhook evidence verify\n",
			cli.Counted(r.unread, "proof", "proofs"), r.by.name)
	}
	return err
}

func (r *reconciler) loadItems(ctx context.Context) error {
	ids := slices.Concat(slices.Collect(maps.Values(r.events))...)
	slices.Sort(ids)
	r.items = map[string]ledger.Item{}
	count, wait := r.p.Counter("event", "events"), time.Duration(0)
	for part := range slices.Chunk(slices.Compact(ids), ledger.MaxReads) {
		if err := smithytime.SleepWithContext(ctx, wait); err != nil {
			return err
		}
		wait = pause
		found, err := r.s.ledger.Get(ctx, part, false)
		if err != nil {
			return err
		}
		maps.Copy(r.items, found)
		// The setting may have been longer.
		for _, i := range found {
			if at := cmp.Or(i.PublishedAt, i.Note.At); !at.IsZero() && !i.ExpiresAt.IsZero() {
				r.window = max(r.window, i.ExpiresAt.Sub(at).Round(time.Minute))
			}
		}
		count(len(part))
	}
	return nil
}

// row says what is known of an id and its events.
func (r *reconciler) row(id string) row {
	made := row{ID: id}
	if r.by.name != eventID {
		made.Events = r.events[id]
	}
	for _, one := range append([]string{id}, made.Events...) {
		open, _ := r.decisions(one)
		made.Parked = append(made.Parked, open...)
	}
	slices.Sort(made.Parked)
	made.Parked = slices.Compact(made.Parked)

	known := made.Events
	if len(known) == 0 {
		known = []string{id}
	}
	var all []finding
	for _, one := range known {
		all = append(all, r.findingOf(one))
	}
	made.Finding = slices.MinFunc(all, byUrgency)
	return made
}

// findingOf returns the finding of an event, or of an id without known events.
func (r *reconciler) findingOf(id string) finding {
	item, known := r.items[id]
	open, decided := r.decisions(id)
	at := r.times[id]
	switch {
	case known && !slices.Contains(findings, finding(item.State)):
		return damaged
	case known:
		return finding(item.State)
	case len(open) > 0:
		return parked
	case decided != "":
		return decided
	case !at.IsZero() && at.Before(r.p.Now().Add(-r.window)):
		return older
	}
	return missing
}

// decisions returns the names of what is parked and open about an id, and what was decided about its deliveries:
// replayed if one of them was, since that one was accepted.
func (r *reconciler) decisions(id string) (open []string, decided finding) {
	if r.items[id].State == ledger.Parked {
		open = append(open, id)
	}
	for _, name := range r.parked[id] {
		switch {
		case r.decided[name] == "":
			open = append(open, name)
		case decided != replayed:
			decided = finding(r.decided[name])
		}
	}
	return open, decided
}

// open reads the list in a file, or from standard input for "-": CSV with a header line if a column is named, otherwise
// one id a line. Each id is returned once, in the order of the list. Errors name the line.
func (r *reconciler) open(name string) (list []string, err error) {
	var text []byte
	if name == "-" {
		text, err = io.ReadAll(r.p.In)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	rows, column, err := r.rows(payment.WithoutBOM(text)) // spreadsheets write a byte order mark
	if err != nil {
		return nil, err
	}
	known, repeated := map[string]bool{}, 0
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(row) == 1 && strings.TrimSpace(row[0]) == "" {
			continue
		}
		id, err := r.parse(row, column)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if known[id] {
			repeated++
		} else {
			known[id], list = true, append(list, id)
		}
	}
	if repeated > 0 {
		fmt.Fprintf(r.p.Err, "%s ignored\n", cli.Counted(repeated, "repeated id", "repeated ids"))
	}
	if len(list) == 0 {
		err = errors.New("the list is empty")
	}
	return list, err
}

// rows returns the rows of a list, and the position of the column. Commas separate columns or, if the column is not
// found like this, semicolons.
func (r *reconciler) rows(text []byte) (rows *csv.Reader, column int, err error) {
	var header []string
	for _, comma := range ",;" {
		rows = csv.NewReader(bytes.NewReader(text))
		rows.Comma, rows.TrimLeadingSpace = comma, true
		if r.column == "" {
			return rows, 0, nil
		}
		if header, err = rows.Read(); err != nil {
			continue
		}
		if column = slices.Index(header, r.column); column >= 0 {
			return rows, column, nil
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the header line: %w", err)
	}
	return nil, 0, fmt.Errorf("there is no column %q; the header line has %q", r.column, header)
}

func (r *reconciler) parse(row []string, column int) (string, error) {
	switch id := strings.TrimSpace(row[column]); {
	case r.column == "" && (len(row) > 1 || strings.ContainsAny(id, ";\t")):
		return "", errors.New("has several columns: for CSV, name that of the id with --column")
	case id == "":
		return "", errors.New("the id is empty")
	case r.by.of != nil:
		return id, nil
	case !payment.IsUUID(id):
		return "", fmt.Errorf("%.60q is not a UUID, which %s is", id, r.by.name)
	default:
		return strings.ToLower(id), nil
	}
}
