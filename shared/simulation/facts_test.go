package simulation

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// facts are what the services received and the senders were answered. They do not depend on the code under test.
type facts struct {
	w          *world
	executing  *call
	latest     map[string]*generation // by eventId
	all        []*generation
	authentic  map[string]bool // bytes of the events of authentic deliveries
	bases      map[string]bool // ids of these deliveries
	violations []string
	proofs     map[string]int // how many of a request are stored

	counts
	notes map[string]bool // decisions about deliveries, by the keys of their objects; true: it must be stored
}

// generation is an item of an eventId in the ledger, from its recording to the end of its window.
type generation struct {
	id       string
	event    *event      // what was recorded last
	sent     *sent       // the delivery that brought it; nil for none
	owner    *invocation // the owner
	state    ledger.State
	entered  map[ledger.State]int // the last moment at which it came into a state
	ended    time.Time            // when it was published or dismissed
	sends    []*send
	marks    []*call // attempts to mark it as published
	accepted bool
	at       time.Time // when its sender recorded it
	since    int       // the moment it took effect
	before   *generation
}

// enter changes the state.
func (g *generation) enter(f *facts, s ledger.State) {
	g.state, g.entered[s] = s, f.w.moment
	if s == ledger.Published || s == ledger.Dismissed {
		g.ended = time.Now()
	}
}

// on returns the attempts that put the event on the bus.
func (g *generation) on() (on []*send) {
	for _, s := range g.sends {
		if s.effect > 0 {
			on = append(on, s)
		}
	}
	return on
}

// during returns the generations that the ledger held while an invocation was under way, the last one first.
func (g *generation) during(inv *invocation) []*generation {
	all := []*generation{g}
	for ; g.since > inv.begun && g.before != nil; g = g.before {
		all = append(all, g.before)
	}
	return all
}

// send is an attempt to put an event on the bus.
type send struct {
	call   *call
	of     *generation // the latest when the request was sent; another may exist when it arrives
	event  *event      // what it had then
	effect int         // the moment of its effect; 0: never
}

// counts are the results of histories.
type counts struct {
	Histories, Faults  int
	Deliveries         int
	Refused            int // not authentic
	Parked             int // deliveries
	Replays, Dismissed int // of deliveries
	Events             int
	Accepted           int
	Recovered          int // published by redrive
	ParkedEvents       int
	ReplayedEvents     int
	DismissedEvents    int
	SentAgain          int // parked events
	Duplicated         int // on the bus more than once
	Died, Suspended    int // published twice: the publisher crashed or was suspended
	AnswerLost         int // likewise: the answer was lost
	NotMark            int // likewise: the mark failed
	Overtaken          int // likewise: a request arrived after another publisher's mark
	ReadMeanwhile      int // reads of the ledger while the first writes continue
	Unpublished        int // requests that the time for publishing ended
	Proofs             int // of accepted deliveries
	Again              int // attempts to store one that was stored before
	Unproven           int // deliveries answered 503, because a proof may be missing
	Met                faultCounts
}

// faultCounts counts the faults by kind of call and kind of fault.
type faultCounts [ops][kinds]int

// numbers calls visit for each field that is a number.
func (c *counts) numbers(visit func(name string, number reflect.Value)) {
	all := reflect.ValueOf(c).Elem()
	for n := range all.NumField() {
		if all.Field(n).CanInt() {
			visit(all.Type().Field(n).Name, all.Field(n))
		}
	}
}

func (c *counts) add(d counts) {
	more := reflect.ValueOf(d)
	c.numbers(func(name string, number reflect.Value) {
		number.SetInt(number.Int() + more.FieldByName(name).Int())
	})
	for o := range ops {
		for k := range kinds {
			c.Met[o][k] += d.Met[o][k]
		}
	}
}

// never returns the paths that did not occur.
func (c counts) never() (paths []string) {
	c.numbers(func(name string, number reflect.Value) {
		if number.IsZero() {
			paths = append(paths, name)
		}
	})
	for o := range ops {
		for k := none + 1; k < kinds; k++ {
			// Few random histories postpone an event. The exhaustive part plays each fault of it.
			if k.applies(o) && o != postpone && c.Met[o][k] == 0 {
				paths = append(paths, fmt.Sprintf("%s: %s", o, kindNames[k]))
			}
		}
	}
	return paths
}

func (c counts) String() string {
	var all []string
	c.numbers(func(name string, number reflect.Value) { all = append(all, fmt.Sprint(name, " ", number)) })
	return strings.Join(all, ", ")
}

func (f *facts) violated(format string, args ...any) {
	f.violations = append(f.violations, shortened(fmt.Sprintf(format, args...)))
}

// idOf returns the id of the event of a detail, which can be a claim check.
func (f *facts) idOf(detail string) string {
	if e := eventsByBytes[detail]; e != nil {
		return e.id
	}
	event, err := payment.DecodeRawEvent([]byte(detail))
	if err != nil {
		return "not an event"
	}
	return ledger.Key(event.EventID)
}

// eventOf returns the event of a detail, which can be a claim check, or nil.
func (f *facts) eventOf(detail string) *event {
	if e := eventsByBytes[detail]; e != nil {
		return e
	}
	open := func(string) objects.Getter { return &f.w.largeEvents }
	resolved, err := bus.Resolve(context.Background(), open, []byte(detail))
	if err != nil {
		return nil
	}
	return eventsByBytes[string(resolved)]
}

// delivered records that a delivery was sent.
func (f *facts) delivered(s *sent) {
	f.Deliveries++
	if s.genuine() {
		f.bases[s.id] = true
		for _, e := range s.events {
			f.authentic[e.raw] = true
		}
	}
}

// begin records that a call was made.
func (f *facts) begin(c *call) {
	inv := c.inv
	keys := c.op == writeKey || c.op == spendKey
	if inv.sent != nil && !inv.sent.genuine() && c.op.writes() && !keys {
		f.violated("%s: %s for a delivery that is not authentic", c.environment.name, c.op)
	}
	if d := inv.decision; d != nil && !d.may(c.op) {
		f.violated("%s: %s, while it decides about %s", c.environment.name, c.op, d.name)
	}
	if c.op == mark {
		for _, id := range c.ids {
			if g := f.latest[id]; g != nil {
				g.marks = append(g.marks, c)
			}
		}
	}
}

// out records that a request was sent.
func (f *facts) out(c *call) {
	if c.sent > 0 {
		return
	}
	c.sent = f.w.moment
	if c.op != put {
		return
	}
	for _, id := range c.ids {
		g := f.latest[id]
		s := &send{call: c, of: g}
		c.sends = append(c.sends, s)
		switch {
		case g == nil:
			f.violated("%s puts %s on the bus, which was not recorded", c.environment.name, id)
			continue
		case g.state != ledger.Pending:
			f.violated("%s puts %s on the bus, which the ledger has as %s", c.environment.name, id, g.state)
		case g.owner != c.inv:
			f.violated("%s puts %s on the bus, which %s holds", c.environment.name, id, g.owner.name)
		}
		s.event = g.event
		g.sends = append(g.sends, s)
	}
}

// recorded handles that an event was written as pending.
func (f *facts) recorded(i *environment, id string) {
	old, inv := f.latest[id], f.executing.inv
	items, _ := f.w.ledger.Get(context.Background(), []string{id}, true)
	e := f.eventOf(string(items[id].Detail))
	if e == nil || !f.authentic[e.raw] {
		f.violated("%s records %s with content that is in no authentic delivery", i.name, id)
		e = &event{}
	}
	if !inv.brings(e) {
		f.violated("%s records %s, which it was not asked to", i.name, e)
	}
	g := &generation{id: id, event: e, sent: inv.sent, owner: inv, entered: map[ledger.State]int{},
		at: f.executing.made, since: f.w.moment, before: old}
	conflict := inv.decision != nil && inv.decision.parked.Reason == proof.Conflict
	if conflict { // a replay only records; redrive publishes
		g.owner = &invocation{environment: i, done: true}
	}
	switch {
	case old == nil:
	case old.state == ledger.Pending, old.state == ledger.Parked && (conflict || old.event.content != e.content):
		f.violated("%s overwrites %s, which is %s", i.name, old, old.state)
	case old.state == ledger.Parked: // it was sent again
		f.SentAgain++
		old.event, old.sent, old.owner, old.at = e, inv.sent, inv, g.at
		g = old
	case time.Now().After(old.at.Add(f.w.window - 2*maxSkew)):
	case !conflict, old.state == ledger.Published && old.event.content == e.content:
		f.violated("%s records %s again within the window", i.name, e)
	}
	if g != old {
		f.latest[id] = g
		f.all = append(f.all, g)
	}
	g.enter(f, ledger.Pending)
	f.checkItem(g, items[id])
}

// brings reports whether an invocation is to record an event.
func (inv *invocation) brings(e *event) bool {
	if inv.sent != nil {
		return slices.Contains(inv.sent.events, e)
	}
	return inv.decision != nil && (inv.decision.parked.Reason == proof.Invalid &&
		strings.Contains(string(inv.decision.parked.Payload), e.raw) ||
		slices.ContainsFunc(inv.decision.parked.Contents, func(c proof.Content) bool {
			return c.EventID == e.id && ledger.Digest(c.Digest) == e.digest
		}))
}

// updated handles that an item of the ledger was changed.
func (f *facts) updated(i *environment, what op, id string) {
	g, inv := f.latest[id], f.executing.inv
	from := ledger.Pending
	if what.isDecision() {
		from = ledger.Parked
	}
	if g == nil || g.state != from {
		f.violated("%s: %s of %s, which is not %s", i.name, what, id, from)
		return
	}
	switch what {
	case lease:
		if prev := g.owner; prev != inv && prev.working() {
			f.violated("%s takes %s from %s, which may still hold it", i.name, id, prev.name)
		}
		g.owner = inv
	case postpone, parkEvent:
		known := func(s *send) bool { return s.call.inv == inv && s.call.answered > 0 }
		switch {
		case g.owner != inv:
			f.violated("%s: %s of %s, which %s holds", i.name, what, id, g.owner.name)
		case slices.ContainsFunc(g.on(), known):
			f.violated("%s: %s of %s, which it has put on the bus", i.name, what, id)
		}
		if what == parkEvent {
			g.enter(f, ledger.Parked)
		}
	case mark:
		if len(g.on()) == 0 {
			f.violated("%s marks %s, which is not on the bus", i.name, id)
		}
		g.enter(f, ledger.Published)
	default:
		f.decisionWritten(g, what)
	}
	items, _ := f.w.ledger.Get(context.Background(), []string{id}, true)
	f.checkItem(g, items[id])
}

// working reports whether an invocation may still publish what it holds.
func (inv *invocation) working() bool {
	return !inv.done && inv.died == 0 && time.Now().Before(inv.deadline)
}

// decisionWritten handles that a parked event was replayed or dismissed.
func (f *facts) decisionWritten(g *generation, what op) {
	c := f.executing
	d := c.inv.decision
	switch {
	case d == nil || d.name != g.id || d.dismiss != (what == dismissEvent):
		f.violated("%s: %s of %s without a decision", c.environment.name, what, g)
		return
	case g.entered[ledger.Parked] > c.begun:
		f.violated("%s: %s of %s, which was parked after the decision", c.environment.name, what, g)
	}
	if d.done = true; d.dismiss {
		f.DismissedEvents++
		g.enter(f, ledger.Dismissed)
		return
	}
	f.ReplayedEvents++
	g.enter(f, ledger.Pending)
	g.owner = &invocation{environment: c.environment, done: true} // redrive publishes it
}

// decide records that the storing of a decision about a delivery started.
func (f *facts) decide(d *decision) {
	if !f.notes[d.note()] {
		f.notes[d.note()] = false
	}
}

// decided checks the result of a decision.
func (f *facts) decided(inv *invocation) {
	d, r := inv.decision, inv.result
	if d.event() {
		f.decidedEvent(inv)
		return
	}
	if d.dismiss {
		f.Dismissed++
	} else {
		f.Replays++
	}
	if d.err == nil && (d.dismiss || r.Done()) {
		f.notes[d.note()] = true
	}
	conflict := d.parked.Reason == proof.Conflict
	if conflict && d.content == wire.NoContent && !d.dismiss && r.Outcome != intake.ContentMissing {
		f.violated("%s replays the conflict %s without a content: %s", inv.name, d.name, r.Outcome)
	}
	if r.Outcome == intake.Accepted {
		f.accepted(inv)
	}
}

// accepted checks a replay of a delivery after which nothing is left to do: its events are in the ledger, or the first
// contents are on the bus.
func (f *facts) accepted(inv *invocation) {
	first := inv.decision.content == wire.FirstContent
	for _, id := range inv.decision.parked.EventIDs {
		held := f.latest[id].during(inv)
		i := slices.IndexFunc(held, func(g *generation) bool {
			return inv.brings(g.event) != first && (!first || len(g.on()) > 0)
		})
		switch {
		case i < 0:
			f.violated("%s reports that %s was replayed, but not of %s", inv.name, inv.decision.name, id)
		case !first:
			held[i].accepted = true
		}
	}
}

// decidedEvent checks the result of a decision about an event.
func (f *facts) decidedEvent(inv *invocation) {
	d, r := inv.decision, inv.result
	reported := map[intake.Outcome]ledger.State{intake.StillPending: ledger.Pending,
		intake.AlreadyPublished: ledger.Published, intake.AlreadyDismissed: ledger.Dismissed}[r.Outcome]
	if d.dismiss && d.err == nil {
		reported = ledger.Dismissed
	}
	is := func(g *generation) bool { return g.entered[reported] > 0 }
	was := slices.ContainsFunc(f.latest[d.name].during(inv), is)
	switch {
	case r.Outcome == intake.Accepted && !d.done, reported != "" && !was,
		r.Outcome == intake.Gone && f.w.largeEventsEnded == 0, r.Outcome == intake.DigestMismatch:
		f.violated("%s reports %s of %s, error: %v", inv.name, r.Outcome, d.name, cmp.Or(r.Err, d.err))
	}
}

// checkNotes compares what is stored about deliveries that are parked with the decisions. Neither is ever deleted.
func (f *facts) checkNotes() {
	stored, err := proof.Decisions(context.Background(), &f.w.parking)
	if err != nil {
		f.violated("the decisions about what is parked: %v", err)
	}
	for name, decision := range stored {
		if _, ok := f.notes[string(decision)+"/"+name]; !ok {
			f.violated("%s is listed as %s without a decision", name, decision)
		}
	}
	for key, must := range f.notes {
		decision, name, _ := strings.Cut(key, "/")
		if _, err := proof.Get(context.Background(), &f.w.parking, name); err != nil {
			f.violated("%s is no longer parked: %v", name, err)
		}
		// What was dismissed and replayed is replayed.
		if is := stored[name]; must && string(is) != decision && is != proof.Replayed {
			f.violated("%s was %s, and is listed as %q", name, decision, is)
		}
	}
}

// kept checks an object of the evidence bucket that was written for a delivery, unless it was there before.
func (f *facts) kept(s *sent, key string, before bool) {
	if before {
		f.Again++
		return
	}
	f.Proofs++
	f.verify(&f.w.evidence, key, s, proof.Accepted)
	if f.proofs[f.request(s)]++; f.proofs[f.request(s)] > 1 {
		f.violated("%s has two proofs", s.name)
	}
}

// verify checks the proof of a delivery.
func (f *facts) verify(bucket *objects.Memory, name string, s *sent, reasons ...proof.Reason) {
	p, err := proof.Get(context.Background(), bucket, name)
	if err == nil {
		_, err = p.Verify()
	}
	same := string(p.Payload) == string(s.payload) && p.DeliveryID == s.id && slices.Contains(reasons, p.Reason)
	if err != nil || !same {
		f.violated("%s is stored as %s: %v", s.name, name, err)
	}
}

// request identifies a request: one that is sent again without being signed again is the same.
func (f *facts) request(s *sent) string {
	if f.w.mechanism == byMTLS {
		return string(s.payload)
	}
	return string(s.payload) + s.at.String()
}

// effect records the effect of a call.
func (f *facts) effect(c *call, out any, err error) {
	if c.op != put || err != nil {
		return
	}
	entries := f.w.bus.Entries()
	for n, failure := range slices.Backward(out.([]error)) {
		if failure != nil {
			continue
		}
		c.sends[n].effect = f.w.moment
		got := entries[len(entries)-1]
		entries = entries[:len(entries)-1]
		detail := string(got.Detail)
		e := f.eventOf(detail)
		if e == nil || !f.authentic[e.raw] {
			f.violated("%s puts on the bus what is in no authentic delivery: %s", c.environment.name, detail)
			continue
		}
		if s := c.sends[n]; s.of != nil && s.event != e {
			f.violated("%s puts %s on the bus, which is not the recorded content", c.environment.name, e)
		}
		if (detail != e.raw) != e.isLarge() {
			f.violated("%s is sent in the wrong form for its size", e)
		}
		if got.DetailType != e.name || !got.Time.Equal(e.at) || got.Source != "payhook" || !f.bases[got.DeliveryID] {
			f.violated("%s has the envelope of another event", e)
		}
	}
}

// answer checks the result of a delivery.
func (f *facts) answer(inv *invocation) {
	r, s := inv.result, inv.sent
	refused := r.Outcome.BeforeProof && !r.Outcome.Unavailable
	switch {
	case !s.genuine():
		if !r.Outcome.BeforeProof {
			f.violated("%s answers %s to a delivery that is not authentic", inv.name, r.Outcome)
		}
		if refused {
			f.Refused++
		}
		return
	case r.Done() || r.Outcome == intake.Invalid && s.partly:
		f.checkEvents(inv)
	case refused:
		f.unauthentic(inv)
	case r.Outcome == intake.KeyOutOfBudget:
		f.outOfBudget(inv)
	case r.Outcome == intake.EvidenceUnavailable:
		f.Unproven++
	}
	f.checkParked(inv)
}

// checkParked checks that a delivery is parked as it is reported, and with a reason.
func (f *facts) checkParked(inv *invocation) {
	r, s := inv.result, inv.sent
	must := map[intake.Outcome]bool{intake.Conflict: s.conflicting, intake.Invalid: s.invalid || s.partly}
	if may, answered := must[r.Outcome]; answered && (r.ParkedAs.Name == "" || !may) {
		f.violated("%s answers %s to %s, parked as %q", inv.name, r.Outcome, s.name, r.ParkedAs.Name)
	}
	for _, name := range []string{r.ParkedAs.Name, r.AlsoParked.Name} {
		if name == "" {
			continue
		}
		f.Parked++
		f.verify(&f.w.parking, name, s, proof.Invalid, proof.Conflict)
	}
}

// checkEvents compares the events of a delivery that is answered 200 with the ledger.
func (f *facts) checkEvents(inv *invocation) {
	s := inv.sent
	f.w.keyEndpoint.accepted(inv)
	if s.invalid || s.partly && inv.result.Outcome != intake.Invalid {
		f.violated("%s accepts %s, which is not valid", inv.name, s.name)
		return
	}
	if f.w.proofs && f.proofs[f.request(s)] == 0 {
		f.violated("%s is answered %s, and no proof exists", s.name, inv.result.Outcome)
	}
	certain, possible := f.conflicts(inv)
	r := inv.result
	conflict := r.Outcome == intake.Conflict
	if (certain && !conflict || !possible && conflict) && !s.twice {
		f.violated("%s is answered %s, with conflicts: %t", s.name, r.Outcome, certain)
	}
	if !conflict && !addsUp(r, len(s.events)) {
		f.violated("%s has wrong counts: %+v", inv.name, r)
	}
}

// conflicts reports whether an event of a delivery was certainly in conflict, and whether one can have been.
func (f *facts) conflicts(inv *invocation) (certain, possible bool) {
	for _, e := range inv.sent.events {
		other, both := f.match(inv, e)
		certain, possible = certain || other, possible || other || both
	}
	return certain, possible
}

// addsUp reports whether the counts of a delivery of n events without a conflict are those of the events.
func addsUp(r intake.Result, n int) bool {
	return r.Recorded+r.Duplicates == r.Events && r.Events == n &&
		r.Published+r.Pending+r.Unmarked+r.Unpublishable == r.Recorded
}

// match compares an event of a delivery with the ledger, and marks it as accepted there. It reports whether the ledger
// had only other content while the delivery was handled, or both, one after the other.
func (f *facts) match(inv *invocation, e *event) (other, both bool) {
	latest := f.latest[e.id]
	if latest == nil {
		f.violated("%s is accepted, and %s was not recorded", inv.sent.name, e)
		return false, false
	}
	// The window may have ended meanwhile, and other content may be recorded.
	held := latest.during(inv)
	i := slices.IndexFunc(held, func(g *generation) bool { return g.event.content == e.content })
	switch {
	case i < 0:
		return true, false
	case len(held) > 1:
		held[i].accepted = true
		return false, true
	}
	g := held[0]
	end := g.ended.Add(f.w.window + 2*maxSkew)
	before := g.entered[g.state] < inv.begun // it was in this state all the time
	switch {
	case before && !g.ended.IsZero() && inv.deadline.Add(-webhookTime).After(end):
		f.violated("%s counts %s as a duplicate after the window", inv.name, e)
	case before && g.state == ledger.Parked:
		f.violated("%s accepts %s, which stays parked", inv.name, e)
	default:
		g.accepted = true
	}
	return false, false
}

// pending reports whether the ledger has pending items.
func (f *facts) pending() bool {
	for _, item := range f.w.ledger.Items() {
		if item.State == ledger.Pending {
			return true
		}
	}
	return false
}

// check counts the events at the end of a history and checks the stored state.
func (f *facts) check() counts {
	c := f.counts
	c.Histories = 1
	for _, g := range f.all {
		c.Events++
		on := g.on()
		switch {
		case len(on) > 0, g.state == ledger.Parked, g.state == ledger.Dismissed:
		case g.accepted:
			f.violated("%s was accepted and is lost", g)
		default:
			f.violated("%s was recorded and never published", g)
		}
		if g.entered[ledger.Parked] > 0 {
			c.ParkedEvents++
		}
		if g.accepted {
			c.Accepted++
		} else if len(on) > 0 {
			c.Recovered++
		}
		if len(on) > 1 {
			c.Duplicated++
			f.explain(g, on, &c)
		}
	}
	f.checkLedger()
	if stored := len(f.w.evidence.Keys()); stored != f.Proofs {
		f.violated("%d proofs of accepted deliveries are stored, and %d were written", stored, f.Proofs)
	}
	f.checkNotes()
	return c
}

// explain finds the cause of every duplicate: the earlier publisher must have been unable to mark the event.
func (f *facts) explain(g *generation, on []*send, c *counts) {
	slices.SortStableFunc(on, func(a, b *send) int { return a.call.sent - b.call.sent })
	for i, later := range on[1:] {
		for j, earlier := range on[:i+1] {
			switch why := causeOf(g, earlier, later.call.sent); {
			case why == nil:
				f.violated("%s is on the bus twice without a reason: by %s and by %s", g, earlier.call.environment.name,
					later.call.environment.name)
			case j < i: // each extra publication is counted once
			case g.entered[ledger.Published] > 0 && earlier.effect > g.entered[ledger.Published]:
				c.Overtaken++
			default:
				*why(c)++
			}
		}
	}
}

// causeOf returns the counter of the reason why the publisher of s had not marked the event by a moment, or nil.
func causeOf(g *generation, s *send, by int) func(*counts) *int {
	inv := s.call.inv
	past := func(moment int) bool { return moment > 0 && moment <= by }
	if past(inv.died) {
		return func(c *counts) *int { return &c.Died }
	}
	for _, span := range inv.frozen {
		if past(span[0]) && !past(span[1]) {
			return func(c *counts) *int { return &c.Suspended }
		}
	}
	if past(s.call.failed) {
		return func(c *counts) *int { return &c.AnswerLost }
	}
	if !past(s.call.answered) {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(g.marks), func(m *call) bool { return m.inv != inv })
	if len(own) == 0 || slices.ContainsFunc(own, func(m *call) bool { return !past(m.failedFor(g.id)) }) {
		return nil
	}
	return func(c *counts) *int { return &c.NotMark }
}

// checkLedger checks the items of the ledger, and that a person finds what is parked.
func (f *facts) checkLedger() {
	items := f.w.ledger.Items()
	listed, _ := ledger.List(context.Background(), f.w.ledger, ledger.Parked)
	for id, g := range f.latest {
		if _, exists := items[id]; exists || g.ended.IsZero() {
			f.checkItem(g, items[id])
		}
		is := slices.ContainsFunc(listed, func(i ledger.Item) bool { return i.EventID == id })
		if is != (g.state == ledger.Parked) {
			f.violated("%s is %s, and is listed as parked: %t", g, g.state, is)
		}
	}
}

// checkItem checks the item of an event: what is pending or parked has its bytes and does not expire.
func (f *facts) checkItem(g *generation, i ledger.Item) {
	pending, parked := i.State == ledger.Pending, i.State == ledger.Parked
	open := pending || parked
	stored := !open || g.entered[ledger.Parked] < f.w.largeEventsEnded || f.eventOf(string(i.Detail)) == g.event
	if slices.Contains([]bool{
		i.State == g.state, i.Digest == g.event.digest, stored, open == (len(i.Detail) > 0),
		open == i.ExpiresAt.IsZero(), pending == !i.LeasedUntil.IsZero(), parked == !i.ParkedAt.IsZero(),
		pending == (i.LeaseOwner != ledger.LeaseOwner{}),
		parked == (i.Cause != ""), open == (i.Shard != ""), open == strings.HasPrefix(i.Shard, string(i.State)+"/"),
		open || i.Attempts == 0, open || !i.Large, i.State != ledger.Dismissed || !i.Note.At.IsZero(),
	}, false) {
		f.violated("%s is %s, and the ledger has %+v", g, g.state, i)
	}
}

func (g *generation) String() string { return g.event.String() }

// line is a line of the printed history.
type line struct {
	at     time.Duration
	who    string
	op     string
	what   string
	fault  fault
	result string
}

func (w *world) log(i *environment, op, what string, f fault, result string) {
	w.lines = append(w.lines, line{at: time.Since(w.start), who: i.name, op: op, what: what, fault: f, result: result})
}

// String returns the history as text.
func (w *world) String() string {
	var b strings.Builder
	for _, i := range w.environments {
		if i.skew != 0 {
			fmt.Fprintf(&b, "the clock of %s is off by %v\n", i.name, i.skew)
		}
	}
	for _, l := range w.lines {
		fmt.Fprintf(&b, "%12.6f  %-10s", l.at.Seconds(), l.who)
		for _, part := range []string{l.op, shortened(l.what)} {
			if part != "" {
				b.WriteString("  " + part)
			}
		}
		if l.fault.kind != none {
			b.WriteString("  ** " + l.fault.String() + " **")
		}
		if l.result != "" {
			b.WriteString(": " + l.result)
		}
		b.WriteString("\n")
	}
	for _, v := range w.facts.violations {
		fmt.Fprintln(&b, "VIOLATED:", v)
	}
	return b.String()
}

// shortened replaces the ids of events by their labels.
func shortened(text string) string {
	for i := 0; i+36 <= len(text); i++ {
		if e := eventsByID[text[i:min(i+36, len(text))]]; e != nil {
			return text[:i] + e.String() + shortened(text[i+36:])
		}
	}
	return text
}
