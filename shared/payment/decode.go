package payment

import (
	"bytes"
	"cmp"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Delivery is the content of one webhook (section 2.2).
type Delivery struct {
	DeliveryID string     // a UUID, as sent
	Events     []RawEvent // at least one, in the order of the payload
	Rejected   []Rejected // the other elements of events: those without identity
	Err        error      // why the first of Rejected has none, wrapping a [*FieldError]; nil if there are none
}

// Rejected is an element of a delivery's events without identity.
type Rejected struct {
	Position int    // in the events of the payload, from 0
	EventID  string // "" unless it is a UUID
}

// RawEvent is one event of a delivery: the fields that Payhook uses, and the bytes as they were signed.
type RawEvent struct {
	EventName      string
	EventID        string    // a UUID, as sent
	EventTimestamp time.Time // in UTC; zero if it is absent or can't be read
	SentTimestamp  string    // eventTimestamp as sent; "" if it is no string, or longer than 128 bytes
	// Amount and Currency are eventData.amount as sent and the text of eventData.paymentCurrency; "" if it has another
	// type, or is longer than 128 bytes.
	Amount, Currency string
	Bytes            []byte // the JSON object; shares the payload's memory
	// Deviations are the paths to values of another type than in the interface, null excepted and of an array the first
	// alone, and eventTimestamp if EventTimestamp is zero. They have only names of the interface.
	Deviations []string
}

// FieldError describes the problem of one field of a payload. It contains no value, and no name that the interface does
// not define, so its text can be logged and sent in a response.
type FieldError struct {
	Field   string // as in events[3].eventId; "payload" for the whole
	Problem string // as in "must be a UUID"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// DecodeDelivery decodes the payload of a webhook, after a byte order mark. The bytes of the events are parts of
// payload, which must not change while they are in use. Every error wraps a [*FieldError]. It is safe for concurrent
// use.
//
// It rejects a payload that is not exactly one JSON object (RFC 8259) or has, at any depth, duplicate names in an
// object, invalid UTF-8 or unpaired surrogates; that has no deliveryId that is a UUID, no events with an identity, or a
// name that differs from one of these two only in case.
//
// An element of events has an identity if it is an object with an eventId that is a UUID, an eventName of the form
// GROUP.STATUS, no claimCheck (which is reserved for package bus), and no name that differs from claimCheck or a field
// of section 2.3 only in case. Everything in eventData is accepted.
func DecodeDelivery(payload []byte) (Delivery, error) {
	w := newWalker(payload, false)
	defer w.free()
	if err := w.decode(deliverySchema); err != nil {
		return Delivery{}, err
	}
	if len(w.delivery.Events) == 0 {
		return Delivery{}, w.delivery.Err
	}
	return w.delivery, nil
}

// DecodeRawEvent decodes the detail of an event on the bus as [DecodeDelivery] decodes an element of events, but
// accepts the field claimCheck: the detail is an event, or a reference to one. The event's bytes share raw's memory.
func DecodeRawEvent(raw []byte) (RawEvent, error) {
	return decodeEvent(raw, true)
}

func decodeEvent(raw []byte, reference bool) (RawEvent, error) {
	w := newWalker(raw, reference)
	defer w.free()
	if err := w.decode(eventSchema, step{name: "event"}); err != nil {
		return RawEvent{}, err
	}
	if w.delivery.Err != nil {
		return RawEvent{}, w.delivery.Err
	}
	return w.delivery.Events[0], nil
}

// PeekIDs returns the ids in a payload as far as they can be read, and at most limit eventIds. The payload can be one
// that [DecodeDelivery] rejects.
func PeekIDs(payload []byte, limit int) (deliveryID string, eventIDs []string) {
	peek(payload, func(ofEvent bool, name, value string) bool {
		switch {
		case !IsUUID(value):
		case !ofEvent && name == "deliveryId":
			deliveryID = value
		case ofEvent && name == "eventId" && len(eventIDs) < limit:
			eventIDs = append(eventIDs, value)
		}
		return deliveryID == "" || len(eventIDs) < limit
	})
	return deliveryID, eventIDs
}

// maxPeeked limits what a payload that is not authentic costs.
const maxPeeked = 64 << 10

// PeekDeliveryID returns the first deliveryId that is a UUID in the first 64 KiB of a payload, or "". The payload can
// be one that [DecodeDelivery] rejects.
func PeekDeliveryID(payload []byte) string {
	id, _ := PeekIDs(payload[:min(len(payload), maxPeeked)], 0)
	return id
}

// PeekTime returns the latest eventTimestamp in a payload, or the zero time if none can be read. The payload need not
// be valid.
func PeekTime(payload []byte) (latest time.Time) {
	peek(payload, func(ofEvent bool, name, value string) bool {
		if ofEvent && name == "eventTimestamp" {
			if at, _, err := ParseTime(value); err == nil && at.After(latest) {
				latest = at
			}
		}
		return true
	})
	return latest
}

// peek calls found for every member of the payload and of its events, with the text of its value, or of the beginning
// of an object or array. It stops when found returns false or at the first error.
func peek(payload []byte, found func(ofEvent bool, name, value string) bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(WithoutBOM(payload)), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	inEvents := false
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		depth := dec.StackDepth()
		if kind, length := dec.StackIndex(depth); kind != '{' || length%2 == 0 {
			continue // not the name of a member
		}
		name := token.String()
		if depth == 1 {
			inEvents = name == "events"
		}
		if depth != 1 && !(depth == 3 && inEvents) {
			continue
		}
		value, _ := dec.ReadToken() // after an error, the next call fails as well
		if !found(depth == 3, name, value.String()) {
			return
		}
	}
}

// consequence is what follows from a value that is not as in the interface.
type consequence int

const (
	deviates consequence = iota
	rejectsEvent
	rejectsDelivery
)

// schema describes one value of the interface.
type schema struct {
	kind     jsontext.Kind // of the value; 't' means true and false
	wrong    consequence   // of another kind, a problem, a name in another case, or if it is required and missing
	members  []member      // of an object
	elements *schema       // of an array
	// text takes a string or number, and returns its problem, or "".
	text func(w *walker, raw []byte) (problem string)
}

type member struct {
	name     string
	value    *schema
	required bool
	reserved bool // must not occur
	routed   bool // is in the routing data; of an object, its routed members are
}

var (
	textSchema      = &schema{kind: '"'}
	timestampSchema = &schema{kind: '"', text: (*walker).eventTimestamp} // null is wrong
	anySchema       = &schema{}                                          // of any kind

	deliverySchema = &schema{kind: '{', wrong: rejectsDelivery, members: []member{
		{name: "deliveryId", required: true,
			value: &schema{kind: '"', wrong: rejectsDelivery, text: (*walker).deliveryID}},
		{name: "events", required: true,
			value: &schema{kind: '[', wrong: rejectsDelivery, elements: eventSchema}},
	}}

	eventSchema = &schema{kind: '{', wrong: rejectsEvent, members: []member{
		// A detail with this name refers to an event and is not one (package bus).
		{name: "claimCheck", reserved: true},
		{name: "eventName", required: true,
			value: &schema{kind: '"', wrong: rejectsEvent, text: (*walker).eventName}},
		{name: "eventId", required: true, value: &schema{kind: '"', wrong: rejectsEvent, text: (*walker).eventID}},
		{name: "eventTimestamp", required: true, value: timestampSchema},
		{name: "eventData", value: eventDataSchema},
	}}

	eventDataSchema = &schema{kind: '{', members: []member{
		{name: "identifiers", value: &schema{kind: '{', members: []member{
			{name: "paymentRequestId", value: textSchema},
			{name: "paymentEndToEndId", value: textSchema},
			{name: "svcUniquePaymentId", value: textSchema},
			{name: "railReferenceId", value: &schema{kind: '{'}},
			{name: "svcPostingIds", value: &schema{kind: '[', elements: textSchema}},
		}}},
		{name: "paymentExecutedValueDate", value: textSchema},
		{name: "amount", routed: true, value: &schema{kind: '0', text: (*walker).amount}},
		{name: "amountType", value: textSchema},
		{name: "paymentCurrency", routed: true, value: &schema{kind: '"', text: (*walker).currency}},
		{name: "paymentStatus", routed: true, value: &schema{kind: '{', members: []member{
			{name: "status", routed: true, value: textSchema},
			{name: "statusTime", routed: true, value: textSchema},
		}}},
		{name: "returns", routed: true, value: flag("hasReturnDetails")},
		{name: "cancelations", routed: true, value: flag("hasCancelationDetails")},
		{name: "cases", routed: true, value: flag("hasLinkedCases")},
	}}
)

func flag(name string) *schema {
	return &schema{kind: '{', members: []member{{name: name, routed: true, value: &schema{kind: 't'}}}}
}

// walker reads a payload once, token by token, and checks it against a schema.
type walker struct {
	payload  []byte // without a byte order mark
	mark     int64  // the bytes of the mark
	buffer   bytes.Buffer
	dec      jsontext.Decoder
	path     []step // the current value
	delivery Delivery
	current  RawEvent
	inEvent  int  // the steps of path to the current event
	rejected bool // the current event has no identity

	reference bool // accepts the reserved field
}

// walkers reuses walkers: most allocations of decoding are a decoder's buffers for names.
var walkers = sync.Pool{New: func() any { return new(walker) }}

func newWalker(payload []byte, reference bool) *walker {
	w := walkers.Get().(*walker)
	w.payload, w.reference = WithoutBOM(payload), reference
	w.mark = int64(len(payload) - len(w.payload))
	// A bytes.Buffer is decoded in place, without a copy.
	w.buffer = *bytes.NewBuffer(w.payload)
	w.dec.Reset(&w.buffer)
	return w
}

func (w *walker) free() {
	w.payload, w.path, w.delivery, w.current = nil, w.path[:0], Delivery{}, RawEvent{}
	w.buffer = bytes.Buffer{}
	w.dec.Reset(&w.buffer) // releases the payload
	walkers.Put(w)
}

// step selects a member of an object by its name, or an element of an array by its index if the name is empty.
type step struct {
	name  string
	index int
}

func (w *walker) enter(s step) { w.path = append(w.path, s) }
func (w *walker) leave()       { w.path = w.path[:len(w.path)-1] }

// problem returns an error about the current value.
func (w *walker) problem(format string, args ...any) error {
	return fmt.Errorf("payment: %w", &FieldError{Field: cmp.Or(where(w.path), "payload"),
		Problem: fmt.Sprintf(format, args...)})
}

// where returns the text of a path.
func where(path []step) string {
	var field strings.Builder
	for i, s := range path {
		switch {
		case s.name == "":
			fmt.Fprintf(&field, "[%d]", s.index)
		case i > 0:
			field.WriteString("." + s.name)
		default:
			field.WriteString(s.name)
		}
	}
	return field.String()
}

// report notes that the current value is not as in the interface. It returns an error if that rejects the delivery, so
// that nothing more is read.
func (w *walker) report(c consequence, format string, args ...any) error {
	switch c {
	case rejectsDelivery:
		return w.problem(format, args...)
	case rejectsEvent:
		if w.delivery.Err == nil {
			w.delivery.Err = w.problem(format, args...)
		}
		w.rejected = true
	default:
		w.current.Deviations = append(w.current.Deviations, where(w.path[w.inEvent:]))
	}
	return nil
}

// decode reads the only value of the payload; root is its name, if it has one.
func (w *walker) decode(s *schema, root ...step) error {
	w.path = append(w.path, root...)
	if err := w.value(s); err != nil {
		return err
	}
	if _, err := w.dec.ReadToken(); err != io.EOF {
		return w.problem("has data after its end, at byte %d", w.mark+w.dec.InputOffset())
	}
	return nil
}

// value reads one value. After an error, the path leads to the value with the problem.
func (w *walker) value(s *schema) error {
	if s != eventSchema {
		return w.read(s)
	}
	w.current, w.rejected, w.inEvent = RawEvent{}, false, len(w.path)
	if err := w.read(s); err != nil {
		return err
	}
	if !w.rejected {
		w.delivery.Events = append(w.delivery.Events, w.current)
		return nil
	}
	w.delivery.Rejected = append(w.delivery.Rejected, Rejected{w.path[len(w.path)-1].index, w.current.EventID})
	return nil
}

// read reads one value, of an event or not.
func (w *walker) read(s *schema) error {
	kind := kindOf(&w.dec)
	switch {
	case kind != s.kind && s != anySchema:
		if err := w.skip(); err != nil || kind == 'n' && s.wrong == deviates && s != timestampSchema {
			return err
		}
		return w.report(s.wrong, "must be %s", nameOf[s.kind])
	case s.kind == '{':
		return w.object(s)
	case s.kind == '[':
		return w.array(s)
	case s.text == nil:
		return w.skip()
	}
	raw, err := w.dec.ReadValue()
	if err != nil {
		return w.malformed(err)
	}
	if problem := s.text(w, raw); problem != "" {
		return w.report(s.wrong, "%s", problem)
	}
	return nil
}

// kindOf returns the kind of the next value; 't' means true and false.
func kindOf(dec *jsontext.Decoder) jsontext.Kind {
	if kind := dec.PeekKind(); kind != 'f' {
		return kind
	}
	return 't'
}

// skip reads one value of any kind. Decoder.SkipValue reads an object or array token by token, which takes longer.
func (w *walker) skip() error {
	if _, err := w.dec.ReadValue(); err != nil {
		return w.malformed(err)
	}
	return nil
}

var nameOf = map[jsontext.Kind]string{
	'"': "a string", '0': "a number", 't': "true or false", '{': "an object", '[': "an array",
}

// token reads the beginning or the end of an object or array, which PeekKind has seen.
func (w *walker) token() { _, _ = w.dec.ReadToken() }

func (w *walker) object(s *schema) error {
	w.token()
	start := w.dec.InputOffset() - 1
	var seen uint32 // a bit for each of s.members
	for w.dec.PeekKind() != '}' {
		name, err := w.dec.ReadValue()
		if err != nil {
			return w.malformed(err)
		}
		i, known := s.find(name)
		switch {
		case known:
			seen |= 1 << i
			err = w.member(&s.members[i])
		default:
			if i >= 0 && s.wrong != deviates {
				err = w.report(s.wrong, "has a name that differs from %s only in case", s.members[i].name)
			}
			err = cmp.Or(err, w.skip())
		}
		if err != nil {
			return err
		}
	}
	w.token()
	for i := range s.members {
		if m := &s.members[i]; m.required && seen&(1<<i) == 0 {
			w.enter(step{name: m.name})
			if err := w.report(m.value.wrong, "is missing"); err != nil {
				return err
			}
			w.leave()
		}
	}
	if s == eventSchema {
		w.current.Bytes = w.payload[start:w.dec.InputOffset()]
	}
	return nil
}

func (w *walker) member(m *member) (err error) {
	w.enter(step{name: m.name})
	if !m.reserved {
		err = w.value(m.value)
	} else if err = w.skip(); err == nil && !w.reference {
		err = w.report(rejectsEvent, "is the name of a reference to an event: resolve it first (package bus)")
	}
	if err == nil {
		w.leave()
	}
	return err
}

func (w *walker) array(s *schema) error {
	w.token()
	elements, deviations := 0, len(w.current.Deviations)
	for ; w.dec.PeekKind() != ']'; elements++ {
		w.enter(step{index: elements})
		element := s.elements
		if s.wrong == deviates && len(w.current.Deviations) > deviations {
			element = anySchema
		}
		if err := w.value(element); err != nil {
			return err
		}
		w.leave()
	}
	w.token()
	if s.elements == eventSchema && elements == 0 {
		return w.problem("must hold at least one event")
	}
	return nil
}

// find returns the index of the member that a raw JSON string names, and true. If there is none, it returns false, and
// -1 or the index of a member whose name differs only in case.
func (s *schema) find(raw []byte) (int, bool) {
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(unquote(raw))
	}
	for i := range s.members {
		if string(name) == s.members[i].name {
			return i, true
		}
	}
	for i := range s.members {
		if strings.EqualFold(string(name), s.members[i].name) {
			return i, false
		}
	}
	return -1, false
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	if text := raw[1 : len(raw)-1]; bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	text, _ := jsontext.AppendUnquote(nil, raw)
	return string(text)
}

// malformed replaces an error of the JSON decoder, whose text may contain parts of the payload, by one that does not.
func (w *walker) malformed(err error) error {
	offset := w.dec.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = syntax.ByteOffset
	}
	offset += w.mark
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return w.problem("has a name twice in one object, at byte %d", offset)
	}
	return w.problem("is not well-formed JSON in UTF-8, at byte %d", offset)
}

func (w *walker) deliveryID(raw []byte) (problem string) {
	w.delivery.DeliveryID, problem = readID(raw)
	return problem
}

func (w *walker) eventID(raw []byte) (problem string) {
	w.current.EventID, problem = readID(raw)
	return problem
}

func readID(raw []byte) (id, problem string) {
	if id = unquote(raw); IsUUID(id) {
		return id, ""
	}
	return "", "must be a UUID"
}

func (w *walker) amount(raw []byte) (problem string) {
	if len(raw) <= maxRoutingToken {
		w.current.Amount = string(raw)
	}
	return ""
}

func (w *walker) currency(raw []byte) (problem string) {
	if len(raw) <= maxRoutingToken {
		w.current.Currency = unquote(raw)
	}
	return ""
}

// nameCharacters are the characters of the parts of an event name.
const nameCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-"

// eventName accepts the form GROUP.STATUS of section 2.3: two or more parts, joined by dots. Its maximum length is that
// of the detail-type of an EventBridge event, which the name becomes (AWS, PutEventsRequestEntry).
func (w *walker) eventName(raw []byte) (problem string) {
	text := unquote(raw)
	w.current.EventName = text
	valid := len(text) <= 128 && strings.Contains(text, ".")
	for part := range strings.SplitSeq(text, ".") {
		valid = valid && part != "" && strings.Trim(part, nameCharacters) == ""
	}
	if !valid {
		return "must be GROUP.STATUS, in letters, digits, '_', '-' and '.', at most 128 bytes"
	}
	return ""
}

func (w *walker) eventTimestamp(raw []byte) (problem string) {
	text := unquote(raw)
	// A claim check has it.
	if len(text) <= maxRoutingToken {
		w.current.SentTimestamp = text
	}
	at, _, err := ParseTime(text) // without an offset, it is in UTC (section 2.3)
	if err != nil {
		return "is no timestamp"
	}
	w.current.EventTimestamp = at
	return ""
}

// Path converts a JSON Pointer (RFC 6901) into an event to the notation eventData.identifiers.svcPostingIds[0]. A name
// that the interface does not define, and all that follows it, becomes one *, because such names can be data.
func Path(pointer jsontext.Pointer) string {
	var path strings.Builder
	at := eventSchema
	for name := range pointer.Tokens() {
		if at.kind == '[' {
			fmt.Fprintf(&path, "[%s]", name)
			at = at.elements
			continue
		}
		i := slices.IndexFunc(at.members, func(m member) bool { return m.name == name })
		if i >= 0 {
			at = at.members[i].value
		} else {
			name, at = "*", nil
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		path.WriteString(name)
		if at == nil {
			break
		}
	}
	return path.String()
}
