package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"payhook.example/shared/parking"
	"payhook.example/shared/rfc3339"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
)

const filterUsage = `  --from TIME         of that time or later: RFC 3339, or how long ago, as in 90m,
                      24h, 7d
  --until TIME        of before that time
  --reason REASON     invalid, conflict or unpublishable
  --event ID          about that eventId
  --delivery ID       of that deliveryId
`

const listUsage = `Usage: operator parked list [FILTERS] [--state STATE] [--long]

What is parked and open: authentic deliveries that are invalid or in conflict, and
events that could not be published, that nobody has replayed or settled yet. TIME
is when the delivery was signed, or the event recorded. The earliest comes first.

Exit status 1: at least one of what is listed is open.

` + filterUsage + `  --state STATE       open, replayed, settled or any (default open)
  --long              read each, and show deliveryId, events and cause as well
  --json              one document a line: name, time, reason, state; with --long
                      also deliveryId, eventIds, cause, payloadBytes
`

const showUsage = `Usage: operator parked show NAME [--payload]

One thing that is parked, with everything that proves it but the payload, and what
was decided about it. A listing has the names.

Exit status 1: nothing of that name is parked.

  --payload  write the payload alone, byte for byte: the delivery as it was signed,
             or the event that could not be published
  --json     one document: name, time, reason, state, cause, parkedAt, deliveryId,
             eventIds, payloadBytes, payloadSha256, timestamp, keyId, signature,
             jwk; for one event recordedAt, attempts, claimed, digest; once it is
             replayed or settled decision: by, at, reason, version
`

// filter says which of what is parked is meant. Empty fields say nothing.
type filter struct {
	from, until     time.Time
	reason          string
	event, delivery string
	state           parking.State // "": any
}

// anyState is what --state takes for all states.
const anyState = "any"

func (p *program) filterFlags(o *options, f *flag.FlagSet) {
	f.Func("from", "", func(text string) (err error) { o.filter.from, err = p.timeOf(text); return err })
	f.Func("until", "", func(text string) (err error) { o.filter.until, err = p.timeOf(text); return err })
	f.Func("reason", "", func(text string) error {
		o.filter.reason = text
		return oneOf(text, string(parking.Invalid), string(parking.Conflict), string(parking.Unpublishable))
	})
	f.Func("event", "", func(text string) error { o.filter.event = text; return isID(text) })
	f.Func("delivery", "", func(text string) error { o.filter.delivery = text; return isID(text) })
}

func oneOf(text string, words ...string) error {
	if slices.Contains(words, text) {
		return nil
	}
	return errors.New("must be one of " + strings.Join(words, ", "))
}

func isID(text string) error {
	if !rfc9562.Valid(text) {
		return errors.New("must be a UUID")
	}
	return nil
}

// timeOf reads a time, or how long ago it was.
func (p *program) timeOf(text string) (time.Time, error) {
	if at, err := rfc3339.Parse(text); err == nil {
		return at, nil
	}
	before, err := settings.ParseDuration(strings.TrimSuffix(strings.TrimSpace(text), " ago"))
	if err != nil || before < 0 {
		return time.Time{}, errors.New("must be a time as in 2026-01-31T12:00:00Z, or how long ago it was, as in 24h")
	}
	return p.now().Add(-before), nil
}

func listFlags(p *program, o *options, f *flag.FlagSet) {
	p.filterFlags(o, f)
	f.BoolVar(&o.long, "long", false, "")
	o.filter.state = parking.Open
	f.Func("state", "", func(text string) error {
		if o.filter.state = parking.State(text); text == anyState {
			o.filter.state = ""
		}
		return oneOf(text, string(parking.Open), string(parking.Replayed), string(parking.Settled), anyState)
	})
}

func showFlags(_ *program, o *options, f *flag.FlagSet) { f.BoolVar(&o.payload, "payload", false, "") }

// listed is one thing that is parked, as a listing has it.
type listed struct {
	Name   string        `json:"name"`
	Time   time.Time     `json:"time"` // in its name
	Reason string        `json:"reason"`
	State  parking.State `json:"state"`
}

// detailed is the same once it was read.
type detailed struct {
	listed
	DeliveryID   string   `json:"deliveryId"`
	EventIDs     []string `json:"eventIds"`
	Cause        string   `json:"cause"`
	PayloadBytes int      `json:"payloadBytes"`
}

// reasonOf returns the reason in a name: TIME-REASON-DIGEST.json.
func reasonOf(name string) string {
	base := name[strings.LastIndex(name, "/")+1:]
	_, rest, _ := strings.Cut(base, "-")
	return rest[:max(strings.LastIndex(rest, "-"), 0)]
}

// find calls found with all that is parked and meant by the filter, in the order
// of the names' times, until found fails.
func find(ctx context.Context, lot *parking.Store, f filter, found func(listed) error) error {
	states, err := lot.States(ctx)
	if err != nil {
		return err
	}
	var stopped error
	// one reports whether to go on.
	one := func(name string) bool {
		at, err := parking.TimeOf(name)
		if err != nil {
			return true // no name of ours
		}
		l := listed{Name: name, Time: at, Reason: reasonOf(name), State: cmp.Or(states[name], parking.Open)}
		if f.reason != "" && f.reason != l.Reason || f.state != "" && f.state != l.State {
			return true
		}
		stopped = found(l)
		return stopped == nil
	}
	if f.event == "" && f.delivery == "" {
		return cmp.Or(lot.List(ctx, f.from, f.until, one), stopped)
	}
	list, err := indexed(ctx, lot, f)
	if err != nil {
		return err
	}
	for _, name := range list {
		at, err := parking.TimeOf(name)
		if err != nil || at.Before(f.from) || !f.until.IsZero() && !at.Before(f.until) {
			continue
		}
		// The index is written first: what it names may have failed to be parked.
		parked := false
		err = lot.List(ctx, at, at.Add(time.Millisecond), func(other string) bool {
			parked = other == name
			return !parked
		})
		if err != nil {
			return err
		}
		if parked && !one(name) {
			return stopped
		}
	}
	return nil
}

// indexed returns the names under which the filter's event and delivery are
// parked, in the order of their times.
func indexed(ctx context.Context, lot *parking.Store, f filter) (list []string, err error) {
	if f.event != "" {
		if list, err = lot.FindEvent(ctx, f.event); err != nil {
			return nil, err
		}
	}
	if f.delivery != "" {
		ofDelivery, err := lot.FindDelivery(ctx, f.delivery)
		if err != nil {
			return nil, err
		}
		if f.event == "" {
			list = ofDelivery
		} else {
			list = slices.DeleteFunc(list, func(name string) bool { return !slices.Contains(ofDelivery, name) })
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (p *program) parkedList(ctx context.Context, o *options, list []string) error {
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	lot, err := d.lot()
	if err != nil {
		return err
	}
	total, open := 0, 0
	var batch []detailed // found and not printed yet
	print := func() error {
		if o.long {
			if err := read(ctx, lot, batch); err != nil {
				return err
			}
		}
		for _, l := range batch {
			if err := p.printListed(l, o, total == 0); err != nil {
				return err
			}
			total++
			if l.State == parking.Open {
				open++
			}
		}
		batch = batch[:0]
		return nil
	}
	err = find(ctx, lot, o.filter, func(l listed) error {
		if batch = append(batch, detailed{listed: l}); o.long && len(batch) < readAtOnce {
			return nil
		}
		return print()
	})
	if err != nil {
		return err
	}
	if err := print(); err != nil {
		return err
	}
	if !o.json {
		if total == 0 {
			fmt.Fprintln(p.out, "nothing is parked that this asks for")
		} else {
			fmt.Fprintf(p.out, "\n%d listed, %d of them open\n", total, open)
		}
	}
	if open > 0 {
		return errPerson
	}
	return nil
}

// readAtOnce bounds the memory that --long takes: a parked delivery is up to
// 8 MB.
const readAtOnce = 8

// read reads what is parked, for its details.
func read(ctx context.Context, lot *parking.Store, batch []detailed) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range batch {
		group.Go(func() error {
			parked, err := lot.Get(ctx, batch[i].Name)
			batch[i].DeliveryID, batch[i].EventIDs = parked.DeliveryID, append([]string{}, parked.EventIDs...)
			batch[i].Cause, batch[i].PayloadBytes = parked.Cause, len(payloadOf(parked))
			return err
		})
	}
	return group.Wait()
}

// payloadOf returns what --payload writes.
func payloadOf(p parking.Parked) []byte {
	if p.Payload == nil {
		return p.Event
	}
	return p.Payload
}

func (p *program) printListed(l detailed, o *options, first bool) error {
	switch {
	case o.json && o.long:
		return printJSON(p.out, l)
	case o.json:
		return printJSON(p.out, l.listed)
	}
	// As it goes, so the columns are not as wide as what they hold.
	const columns = "%-24s  %-13s  %-8s  %s\n"
	if first {
		fmt.Fprintf(p.out, columns, "TIME", "REASON", "STATE", "NAME")
	}
	_, err := fmt.Fprintf(p.out, columns, stamp(l.Time), plain(l.Reason), l.State, plain(l.Name))
	if err != nil || !o.long {
		return err
	}
	t := newSheet(p.out)
	t.line("    delivery", "%s", cmp.Or(plain(l.DeliveryID), "could not be read"))
	t.line("    events", "%s", shortened(l.EventIDs))
	if l.Cause != "" {
		t.line("    cause", "%s", plain(l.Cause))
	}
	return t.Flush()
}

func shortened(ids []string) string {
	const most = 3
	if len(ids) == 0 {
		return "none could be read"
	}
	if len(ids) > most {
		return fmt.Sprintf("%s and %d more", plainAll(ids[:most]), len(ids)-most)
	}
	return plainAll(ids)
}

// nameOf takes a name as it may have been copied.
func nameOf(text string) (string, error) {
	name := strings.TrimPrefix(text, "parked/")
	if _, err := parking.TimeOf(name); err != nil || !strings.Contains(name, "/") {
		return "", usageError(fmt.Sprintf("%q is no name: parked list has them, as in 2026/01/31/12/20260131T120000.123Z-conflict-0b7e4c1e3d434f269c0d2f1f6a5b7c8d.json", text))
	}
	return name, nil
}

// proof is everything of what is parked but its payload.
type proof struct {
	listed
	DeliveryID string    `json:"deliveryId,omitempty"`
	EventIDs   []string  `json:"eventIds"`
	Cause      string    `json:"cause,omitempty"`
	ParkedAt   time.Time `json:"parkedAt"`

	PayloadBytes  int    `json:"payloadBytes"`
	PayloadSHA256 string `json:"payloadSha256"`

	Timestamp string          `json:"timestamp,omitempty"`
	KeyID     string          `json:"keyId,omitempty"`
	Signature string          `json:"signature,omitempty"`
	JWK       json.RawMessage `json:"jwk,omitempty"`

	RecordedAt time.Time `json:"recordedAt,omitzero"`
	Attempts   int       `json:"attempts,omitzero"`
	Claimed    bool      `json:"claimed,omitzero"`
	Digest     string    `json:"digest,omitempty"`

	Decision *parking.Note `json:"decision,omitempty"`
}

func (p *program) parkedShow(ctx context.Context, o *options, list []string) error {
	if o.payload && o.json {
		return usageError("--payload writes the payload alone: it goes without --json")
	}
	name, err := nameOf(list[0])
	if err != nil {
		return err
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	lot, err := d.lot()
	if err != nil {
		return err
	}
	parked, err := lot.Get(ctx, name)
	if errors.Is(err, parking.ErrNotParked) {
		fmt.Fprintf(p.err, "operator: nothing is parked as %s; parked list has the names\n", plain(name))
		return errPerson
	}
	if err != nil {
		return err
	}
	payload := payloadOf(parked)
	if o.payload {
		_, err := p.out.Write(payload)
		return err
	}
	state, note, err := lot.Decision(ctx, name)
	if err != nil {
		return err
	}
	at, _ := parking.TimeOf(name)
	sum := sha256.Sum256(payload)
	s := proof{
		listed:     listed{Name: name, Time: at, Reason: string(parked.Reason), State: state},
		ParkedAt:   parked.ParkedAt.UTC().Truncate(time.Millisecond),
		DeliveryID: parked.DeliveryID, EventIDs: append([]string{}, parked.EventIDs...), Cause: parked.Cause,
		PayloadBytes: len(payload), PayloadSHA256: hex.EncodeToString(sum[:]),
		Timestamp: parked.Timestamp, KeyID: parked.KeyID, Signature: parked.Signature, JWK: json.RawMessage(parked.JWK),
		Attempts: parked.Attempts, Claimed: parked.Claimed, Digest: hex.EncodeToString(parked.Digest),
	}
	if !parked.RecordedAt.IsZero() {
		s.RecordedAt = parked.RecordedAt.UTC()
	}
	if state != parking.Open {
		s.Decision = &note
	}
	if o.json {
		return printJSON(p.out, s)
	}
	return p.printProof(s)
}

func (p *program) printProof(s proof) error {
	now := p.now()
	t := newSheet(p.out)
	t.line("name", "%s", plain(s.Name))
	t.line("reason", "%s", plain(s.Reason))
	if s.Cause != "" {
		t.line("cause", "%s", plain(s.Cause))
	}
	t.line("parked", "%s", ago(s.ParkedAt, now))
	t.line("state", "%s", s.State)
	if d := s.Decision; d != nil {
		t.line("decided", "%s", ago(d.At, now))
		for _, field := range [][2]string{{"by", d.By}, {"because", d.Reason}, {"version", d.Version}} {
			if field[1] != "" {
				t.line(field[0], "%s", plain(field[1]))
			}
		}
	}
	t.line("delivery", "%s", cmp.Or(plain(s.DeliveryID), "could not be read"))
	t.line("events", "%s", cmp.Or(plainAll(s.EventIDs), "none could be read"))
	t.line("payload", "%d bytes, SHA-256 %s; --payload writes it", s.PayloadBytes, s.PayloadSHA256)
	if s.KeyID != "" {
		t.line("timestamp", "%s", plain(s.Timestamp))
		t.line("key", "%s", plain(s.KeyID))
		t.line("jwk", "%s", plain(string(s.JWK)))
		t.line("signature", "%s", plain(s.Signature))
	}
	if s.Digest != "" {
		t.line("recorded", "%s", ago(s.RecordedAt, now))
		t.line("attempts", "%d by redrive", s.Attempts)
		t.line("digest", "%s in the ledger", s.Digest)
		if s.Claimed {
			t.line("size", "too large for the bus: the payload is a claim check")
		}
	}
	return t.Flush()
}
