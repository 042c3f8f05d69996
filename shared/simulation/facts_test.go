package simulation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// facts are what the services received and the senders were answered. They do not
// depend on the code under test.
type facts struct {
	w          *world
	executing  *call
	latest     map[string]*generation // by eventId
	all        []*generation
	authentic  map[string]bool // bytes of the events of authentic deliveries
	bases      map[string]bool // ids of these deliveries
	violations []string
	records    map[string]int // how many of a request are stored

	counts
	decisions map[decision]bool // about parked objects; true: stored
}

// decision is a decision about a parked object.
type decision struct {
	state parking.State
	name  string
}

// generation is an item of an eventId in the ledger, from its recording to the end of
// its window.
type generation struct {
	id       string
	event    *event      // what was recorded
	owner    *invocation // the holder
	sends    []*send
	marks    []*call // attempts to mark it as published
	marked   int     // the moment it took effect; 0: never
	markedAt time.Time
	parked   int
	accepted bool
	at       time.Time // when its sender recorded it
	since    int       // the moment it took effect
	before   *generation
}

// during returns the generations that the ledger held while an invocation was
// under way, the last one first.
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
	effect int         // the moment of its effect; 0: never
}

// counts are the results of histories.
type counts struct {
	Histories, Faults  int
	Deliveries         int
	Refused            int // not authentic
	Parked             int // deliveries
	Replays, Dismissed int // of parked objects
	Events             int
	Accepted           int
	Recovered          int // published by redrive
	ParkedEvents       int
	Duplicated         int // on the bus more than once
	Died, Suspended    int // published twice: the publisher crashed or was suspended
	AnswerLost         int // likewise: the answer was lost
	NotMark            int // likewise: the mark failed
	Overtaken          int // likewise: a request arrived after another publisher's mark
	ReadMeanwhile      int // reads of the ledger while the first writes continue
	Unpublished        int // requests that the time for publishing ended
	Records            int // of evidence
	Again              int // attempts to store one that was stored before
	Unproven           int // deliveries answered 503, because a record may be missing
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
	f.violations = append(f.violations, fmt.Sprintf(format, args...))
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
	open := func(string) objects.Getter { return &f.w.claims }
	resolved, err := claimcheck.Resolve(context.Background(), open, []byte(detail))
	if err != nil {
		return nil
	}
	return eventsByBytes[string(resolved)]
}

// delivered records that a delivery was sent.
func (f *facts) delivered(s *sent) {
	if f.latest == nil {
		f.latest, f.authentic, f.bases = map[string]*generation{}, map[string]bool{}, map[string]bool{}
	}
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
	if inv != nil && inv.sent != nil && !inv.sent.genuine() &&
		(c.op == record || c.op == put || c.op == mark || c.op == park || c.op == storeClaim || c.op == keep ||
			c.op == writeKey && c.key == "certificate#last") {
		f.violated("%s: %s for a delivery that is not authentic", c.instance.name, c.op)
	}
	if inv != nil && inv.dismiss != nil && c.op != park {
		f.violated("%s: %s, while it dismisses %s", c.instance.name, c.op, inv.dismiss.name)
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
			f.violated("%s puts %s on the bus, which was not recorded", c.instance.name, short(id))
			continue
		case g.marked > 0:
			f.violated("%s puts %s on the bus, which the ledger has as published", c.instance.name, short(id))
		case g.owner != c.inv:
			f.violated("%s puts %s on the bus, which %s holds", c.instance.name, short(id), g.owner.name)
		}
		g.sends = append(g.sends, s)
	}
}

// recorded handles that a new item was written.
func (f *facts) recorded(i *instance, id string) {
	old := f.latest[id]
	if old != nil && old.marked == 0 && old.parked == 0 {
		f.violated("%s overwrites %s, which is pending", i.name, short(id))
	}
	replay := f.executing.inv != nil && f.executing.inv.replay != nil
	decided := replay && f.executing.inv.replay.version == intake.ParkedVersion
	restored := replay && old != nil && old.parked > 0
	if old != nil && !decided && !restored &&
		time.Now().Before(old.at.Add(cmp.Or(f.w.window, ledger.DefaultWindow)-2*maxSkew)) {
		f.violated("%s records %s again within the window", i.name, short(id))
	}
	g := &generation{id: id, owner: f.executing.inv, at: f.executing.made, since: f.w.moment, before: old}
	if detail := f.w.ledger.Items()[id].Detail; detail != nil {
		g.event = f.eventOf(string(detail))
	}
	if g.event == nil || !f.authentic[g.event.raw] {
		f.violated("%s records %s with content that is in no authentic delivery", i.name, short(id))
		g.event = &event{}
	}
	if replay {
		// A replay only records; redrive publishes.
		if !f.asked(f.executing.inv.replay.parked, g) {
			f.violated("%s records %s, which is not parked content", i.name, g)
		}
		if f.executing.inv.replay.parked.Reason != parking.Invalid {
			g.owner = &invocation{instance: i, done: true}
		}
	}
	f.latest[id] = g
	f.all = append(f.all, g)
}

// asked reports whether a replay of a parked object includes an event.
func (f *facts) asked(p parking.Parked, g *generation) bool {
	if p.Reason == parking.Unpublishable {
		e := f.eventOf(string(p.Event))
		return e != nil && e == g.event
	}
	for n, id := range p.EventIDs {
		digest := ledger.DigestOf([]byte(g.event.raw))
		if id == g.id && (p.Reason == parking.Invalid || bytes.Equal(p.EventDigests[n], digest[:])) {
			return true
		}
	}
	return false
}

// decide records that the storing of a decision started.
func (f *facts) decide(state parking.State, name string) {
	if f.decisions == nil {
		f.decisions = map[decision]bool{}
	}
	if d := (decision{state, name}); !f.decisions[d] {
		f.decisions[d] = false
	}
}

// decided records that a decision was reported as stored.
func (f *facts) decided(state parking.State, name string) { f.decisions[decision{state, name}] = true }

// checkDecisions compares the states of parked objects with the decisions. Parked
// objects are never deleted.
func (f *facts) checkDecisions() {
	states, err := parking.NewStore(f.w.s3, parkedBucket).States(context.Background())
	if err != nil {
		f.violated("the states of what is parked: %v", err)
	}
	for name, state := range states {
		if _, ok := f.decisions[decision{state, name}]; !ok {
			f.violated("%s is listed as %s without a decision", name, state)
		}
	}
	objects := f.w.s3.Objects(parkedBucket)
	for d, stored := range f.decisions {
		if _, ok := objects["parked/"+d.name]; !ok {
			f.violated("%s is no longer parked", d.name)
		}
		// An object that was dismissed and replayed is replayed.
		if state := states[d.name]; stored && state != d.state && state != parking.Replayed {
			f.violated("%s was %s, and is listed as %s", d.name, d.state, cmp.Or(state, parking.Open))
		}
	}
}

// replayed records the result of a replay.
func (f *facts) replayed(inv *invocation) {
	r, p := inv.result, inv.replay
	f.Replays++
	if r.Done() && p.noted == nil {
		f.decided(parking.Replayed, p.name)
	}
	if p.parked.Reason == parking.Conflict && p.version == intake.NoVersion && r.Outcome != intake.VersionMissing {
		f.violated("%s replays the conflict %s without a version: %s", inv.name, p.name, r.Outcome)
	}
	if r.Outcome != intake.Accepted {
		return
	}
	if p.version == intake.FirstVersion {
		if r.Recorded > 0 {
			f.violated("%s records events of %s, whose first version stays", inv.name, p.name)
		}
		return
	}
	for _, id := range p.parked.EventIDs {
		held := false
		for _, g := range f.latest[id].during(inv) {
			if f.asked(p.parked, g) {
				held, g.accepted = true, true
			}
		}
		if !held {
			f.violated("%s reports that %s was replayed, but the ledger has other content of %s", inv.name, p.name,
				short(id))
		}
	}
}

// updated handles that an item of the ledger was changed.
func (f *facts) updated(i *instance, what op, id string) {
	g := f.latest[id]
	switch {
	case g == nil:
		f.violated("%s: %s of %s, which was not recorded", i.name, what, short(id))
	case what == lease:
		prev := g.owner
		if prev != f.executing.inv && !prev.done && prev.died == 0 && time.Now().Before(prev.deadline) {
			f.violated("%s takes %s from %s, which may still hold it", i.name, short(id), prev.name)
		}
		g.owner = f.executing.inv
	case what == postpone && g.owner != f.executing.inv:
		f.violated("%s postpones %s, which %s holds", i.name, short(id), g.owner.name)
	case what == mark:
		if !slices.ContainsFunc(g.sends, func(s *send) bool { return s.effect > 0 }) {
			f.violated("%s marks %s, which is not on the bus", i.name, short(id))
		}
		g.marked, g.markedAt = f.w.moment, time.Now()
	case what == markParked:
		g.parked = f.w.moment
	}
}

// effect records the effect of a call.
func (f *facts) effect(c *call, out any, err error) {
	if c.op != put || err != nil {
		return
	}
	c.effect = true
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
			f.violated("%s puts on the bus what is in no authentic delivery: %s", c.instance.name, detail)
			continue
		}
		if g := c.sends[n].of; g != nil && g.event != e {
			f.violated("%s puts %s on the bus, which is not the recorded version", c.instance.name, e)
		}
		if (detail != e.raw) != e.claimed() {
			f.violated("%s is sent in the wrong form for its size", e)
		}
		if got.DetailType != e.name || !got.Time.Equal(e.at) || got.Source != "payhook" || !f.bases[got.DeliveryID] {
			f.violated("%s has the envelope of another event", e)
		}
	}
}

// answer checks the result of a delivery and returns the status of the answer.
func (f *facts) answer(inv *invocation) int {
	f.evidenced(inv)
	if !inv.sent.genuine() {
		return f.answerUnauthentic(inv)
	}
	f.checkParked(inv)
	switch inv.result.Outcome {
	case intake.Accepted:
		f.checkCounts(inv)
		f.checkEvents(inv)
		return 200
	case intake.Conflict:
		f.checkConflict(inv)
		f.checkEvents(inv)
		return 200
	case intake.Invalid:
		f.checkInvalid(inv)
		if inv.sent.partly {
			f.checkCounts(inv)
			f.checkEvents(inv)
		}
		return 422
	case intake.KeyUnknown, intake.KeyRefused, intake.SignatureMismatch:
		f.unauthentic(inv)
		return 401
	case intake.KeyOutOfBudget:
		f.outOfBudget(inv)
	}
	return 503
}

// answerUnauthentic checks the result of a delivery that is not authentic.
func (f *facts) answerUnauthentic(inv *invocation) int {
	outcome := inv.result.Outcome
	if f.w.mechanism != bySignature && rejectsCertificate(outcome) {
		f.Refused++
		return 401
	}
	switch outcome {
	case intake.SignatureMissing, intake.SignatureRepeated, intake.SignatureMalformed, intake.TimestampOutside,
		intake.KeyUnknown, intake.KeyRefused, intake.SignatureMismatch:
		f.Refused++
		return 401
	case intake.KeyUnavailable, intake.KeyOutOfBudget:
		return 503
	}
	f.violated("%s answers %s to a delivery that is not authentic", inv.name, outcome)
	return 200
}

// checkParked checks that a delivery that is reported as parked is.
func (f *facts) checkParked(inv *invocation) {
	r := inv.result
	if r.Parked == "" {
		return
	}
	f.Parked++
	if _, ok := f.w.s3.Objects(parkedBucket)["parked/"+r.Parked]; !ok {
		f.violated("%s reports that %s is parked, but it is not", inv.name, inv.sent.name)
	}
}

func (f *facts) checkCounts(inv *invocation) {
	r := inv.result
	if r.Recorded+r.Duplicates != r.Events || r.Events != len(inv.sent.events) ||
		r.Published+r.Pending+r.Unmarked+r.Unpublishable != r.Recorded {
		f.violated("%s has wrong counts: %+v", inv.name, r)
	}
}

func (f *facts) checkConflict(inv *invocation) {
	if inv.result.Parked == "" {
		f.violated("%s answers conflict and parks nothing", inv.name)
	}
	if !inv.sent.conflicting {
		f.violated("%s reports a conflict without one: %s", inv.name, inv.sent.name)
	}
}

func (f *facts) checkInvalid(inv *invocation) {
	if inv.result.Parked == "" || !inv.sent.invalid && !inv.sent.partly {
		f.violated("%s answers invalid to %s, parked as %q", inv.name, inv.sent.name, inv.result.Parked)
	}
}

// checkEvents compares the events of a delivery that is answered 200 with the ledger.
func (f *facts) checkEvents(inv *invocation) {
	s := inv.sent
	f.w.keyService.accepted(inv)
	if s.invalid || s.partly && inv.result.Outcome != intake.Invalid {
		f.violated("%s accepts %s, which is not valid", inv.name, s.name)
		return
	}
	certain, possible := 0, 0 // conflicts
	for _, e := range s.events {
		switch f.match(inv, e) {
		case conflicts:
			certain++
		case mayConflict:
			possible++
		}
	}
	conflict := inv.result.Outcome == intake.Conflict
	if (certain > 0 && !conflict || certain+possible == 0 && conflict) && !s.twice {
		f.violated("%s is answered %s, with %d conflicts", s.name, inv.result.Outcome, certain)
	}
}

// matching says whether the ledger had the content of an event while a delivery was handled.
type matching int

const (
	conflictsNot matching = iota
	mayConflict           // it had this content and other content, one after the other
	conflicts
)

// match compares an event of a delivery with the ledger, and marks it as accepted there.
func (f *facts) match(inv *invocation, e *event) matching {
	latest := f.latest[e.id]
	if latest == nil {
		f.violated("%s is accepted, and %s was not recorded", inv.sent.name, e)
		f.all = append(f.all, &generation{id: e.id, accepted: true})
		return conflictsNot
	}
	// The window may have ended meanwhile, and other content may be recorded.
	held := latest.during(inv)
	i := slices.IndexFunc(held, func(g *generation) bool { return g.event.content == e.content })
	switch {
	case i < 0:
		return conflicts
	case len(held) > 1:
		held[i].accepted = true
		return mayConflict
	}
	g := held[0]
	end := g.markedAt.Add(cmp.Or(f.w.window, ledger.DefaultWindow) + 2*maxSkew)
	if g.marked > 0 && g.marked < inv.begun && inv.deadline.Add(-webhookTime).After(end) {
		f.violated("%s counts %s as a duplicate after the window", inv.name, e)
	} else {
		g.accepted = true
	}
	return conflictsNot
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
		var on []*send
		for _, s := range g.sends {
			if s.effect > 0 {
				on = append(on, s)
			}
		}
		switch {
		case g.accepted && len(on) == 0 && g.parked == 0:
			f.violated("%s was accepted and is lost", g)
		case len(on) == 0 && g.parked == 0:
			f.violated("%s was recorded and never published", g)
		case len(on) == 0 && !f.undecided(g) && !f.publishedAfter(g):
			f.violated("%s is not on the bus, and all that is parked of it is marked as replayed", g)
		}
		if g.parked > 0 {
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
	f.checkEvidence()
	f.checkDecisions()
	return c
}

// undecided reports whether a person sees that an event is parked, or has dismissed it.
func (f *facts) undecided(g *generation) (is bool) {
	store := parking.NewStore(f.w.s3, parkedBucket)
	list, _ := store.FindEvent(context.Background(), g.id)
	for _, name := range list {
		p, err := store.Get(context.Background(), name)
		state, _, _ := store.Decision(context.Background(), name)
		is = is || err == nil && p.Reason == parking.Unpublishable && f.asked(p, g) && state != parking.Replayed
	}
	return is
}

// publishedAfter reports whether an event that was parked was recorded and published later.
func (f *facts) publishedAfter(g *generation) bool {
	return slices.ContainsFunc(f.all, func(later *generation) bool {
		return later.event == g.event && later.since > g.since &&
			slices.ContainsFunc(later.sends, func(s *send) bool { return s.effect > 0 })
	})
}

// explain finds the cause of every duplicate: the earlier publisher must have been
// unable to mark the event.
func (f *facts) explain(g *generation, on []*send, c *counts) {
	slices.SortStableFunc(on, func(a, b *send) int { return a.call.sent - b.call.sent })
	for i, later := range on[1:] {
		for j, earlier := range on[:i+1] {
			if why := causeOf(g, earlier, later.call.sent); why != nil {
				switch {
				case j < i: // each extra publication is counted once
				case g.marked > 0 && earlier.effect > g.marked:
					c.Overtaken++
				default:
					*why(c)++
				}
				continue
			}
			f.violated("%s is on the bus twice without a reason: by %s and by %s", g, earlier.call.instance.name,
				later.call.instance.name)
		}
	}
}

// causeOf returns the counter of the reason why the publisher of s had not marked the
// event by a moment, or nil.
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
	tried := false
	for _, m := range g.marks {
		if m.inv != inv {
			continue
		}
		if !past(m.failedFor(g.id)) {
			return nil
		}
		tried = true
	}
	if !tried {
		return nil
	}
	return func(c *counts) *int { return &c.NotMark }
}

// checkLedger checks the items of the ledger.
func (f *facts) checkLedger() {
	for id, item := range f.w.ledger.Items() {
		if item.Shard != "" || item.Detail != nil || item.Size+item.Attempts != 0 ||
			item.Holder != (ledger.Holder{}) || item.Claimed || !item.Due.IsZero() && item.Cause == "" {
			f.violated("%s is as if it were pending: %+v", short(id), item)
		}
		if item.ExpiresAt.IsZero() {
			f.violated("%s never expires", short(id))
		}
	}
	for id, g := range f.latest {
		if g.parked == 0 || g.marked > 0 {
			continue
		}
		found := false
		for key := range f.w.s3.Objects(parkedBucket) {
			found = found || strings.HasPrefix(key, "event/"+id+"/")
		}
		if !found {
			f.violated("%s is marked as parked, but is not", g)
		}
	}
}

func (g *generation) String() string { return g.event.String() }

func short(id string) string {
	if e := eventsByID[id]; e != nil {
		return e.String()
	}
	return id
}

// line is a line of the printed history.
type line struct {
	at     time.Duration
	who    string
	op     string
	what   string
	fault  fault
	result string
}

func (l line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6f  %-10s", l.at.Seconds(), l.who)
	for _, part := range []string{l.op, l.what} {
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
	return b.String()
}

func (w *world) log(i *instance, op, what string, f fault, result string) {
	w.lines = append(w.lines, line{time.Since(w.start), i.name, op, what, f, result})
}

// String returns the history as text.
func (w *world) String() string {
	var b strings.Builder
	for _, i := range w.instances {
		if i.skew != 0 {
			fmt.Fprintf(&b, "the clock of %s is off by %v\n", i.name, i.skew)
		}
	}
	for _, l := range w.lines {
		l.what = shortened(l.what)
		fmt.Fprintln(&b, l)
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

// describe returns a short text for an answer.
func describe(c *call, out any, err error) string {
	if err != nil {
		return err.Error()
	}
	switch out := out.(type) {
	case []ledger.Result:
		done, failed := 0, 0
		for _, r := range out {
			if r.Done {
				done++
			} else if r.Err != nil {
				failed++
			}
		}
		return fmt.Sprintf("%d done, %d not, %d failed", done, len(out)-done-failed, failed)
	case []ledger.Item:
		return fmt.Sprintf("%d items", len(out))
	case []error:
		failed := len(slices.DeleteFunc(slices.Clone(out), func(err error) bool { return err == nil }))
		return fmt.Sprintf("%d accepted, %d failed", len(out)-failed, failed)
	}
	if c.op == fetchKey {
		return "answered"
	}
	return "done"
}
