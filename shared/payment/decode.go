package payment

import (
	"bytes"
	"cmp"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	var w walker
	if err := w.decode(payload, deliverySchema); err != nil {
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
	w := walker{reference: reference}
	err := w.decode(raw, eventSchema, step{name: "event"})
	if err = cmp.Or(err, w.delivery.Err); err != nil {
		return RawEvent{}, err
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
			if at, _, ok := ParseTime(value); ok && at.After(latest) {
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

// walker reads a payload once, token by token, and checks it against a schema. After a failed read, its results have no
// meaning.
type walker struct {
	payload   []byte // without a byte order mark
	dec       *jsontext.Decoder
	failed    bool   // a read has failed: the payload is not well-formed
	path      []step // the current value
	delivery  Delivery
	err       error // the first problem that rejects the delivery
	current   RawEvent
	inEvent   int  // the steps of path to the current event
	rejected  bool // the current event has no identity
	reference bool // accepts the reserved field
}

// decoders reuses decoders: most allocations of decoding are their buffers for names.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// step selects a member of an object by its name, or an element of an array by its index if the name is empty.
type step struct {
	name  string
	index int
}

func (w *walker) enter(s step) { w.path = append(w.path, s) }
func (w *walker) leave()       { w.path = w.path[:len(w.path)-1] }

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

func problem(path []step, format string, args ...any) error {
	return fmt.Errorf("payment: %w", &FieldError{Field: cmp.Or(where(path), "payload"),
		Problem: fmt.Sprintf(format, args...)})
}

// report notes that the current value is not as in the interface.
func (w *walker) report(c consequence, format string, args ...any) {
	switch c {
	case rejectsDelivery:
		w.err = cmp.Or(w.err, problem(w.path, format, args...))
	case rejectsEvent:
		if w.rejected = true; w.delivery.Err == nil {
			w.delivery.Err = problem(w.path, format, args...)
		}
	default:
		w.current.Deviations = append(w.current.Deviations, where(w.path[w.inEvent:]))
	}
}

// decode reads a payload; root is its name, if it has one.
func (w *walker) decode(payload []byte, s *schema, root ...step) error {
	w.payload, w.path = WithoutBOM(payload), root
	w.dec = decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(w.dec)
	w.dec.Reset(bytes.NewBuffer(w.payload)) // decodes a bytes.Buffer in place, without a copy
	defer w.dec.Reset(&bytes.Buffer{})      // releases the payload
	w.value(s)
	if _, err := w.dec.ReadToken(); w.failed || err != io.EOF {
		return malformed(w.payload, int64(len(payload)-len(w.payload)), s, root)
	}
	return w.err
}

// malformed returns the problem of a text, which begins at that offset, without any of its contents.
func malformed(text []byte, offset int64, s *schema, root []step) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	_, err := dec.ReadValue()
	if err == nil {
		return problem(root, "has data after its end, at byte %d", offset+dec.InputOffset())
	}
	at, pointer := dec.InputOffset(), dec.StackPointer()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, pointer = syntax.ByteOffset, syntax.JSONPointer
	}
	what := "is not well-formed JSON in UTF-8"
	if errors.Is(err, jsontext.ErrDuplicateName) {
		pointer, what = pointer.Parent(), "has a name twice in one object"
	}
	path, _ := steps(root, s, pointer)
	return problem(path, "%s, at byte %d", what, offset+at)
}

func (w *walker) value(s *schema) {
	if s != eventSchema {
		w.read(s)
		return
	}
	w.current, w.rejected, w.inEvent = RawEvent{}, false, len(w.path)
	if w.read(s); w.rejected {
		w.delivery.Rejected = append(w.delivery.Rejected, Rejected{w.path[len(w.path)-1].index, w.current.EventID})
	} else {
		w.delivery.Events = append(w.delivery.Events, w.current)
	}
}

// read reads one value, of an event or not.
func (w *walker) read(s *schema) {
	kind := kindOf(w.dec)
	switch {
	case kind != s.kind:
		w.next()
		if kind != 'n' || s.wrong != deviates || s == timestampSchema {
			w.report(s.wrong, "must be %s", nameOf[s.kind])
		}
	case s.kind == '{':
		w.object(s)
	case s.kind == '[':
		w.array(s)
	case s.text == nil:
		w.next()
	default:
		if raw := w.next(); !w.failed {
			if problem := s.text(w, raw); problem != "" {
				w.report(s.wrong, "%s", problem)
			}
		}
	}
}

// kindOf returns the kind of the next value; 't' means true and false.
func kindOf(dec *jsontext.Decoder) jsontext.Kind {
	if kind := dec.PeekKind(); kind != 'f' {
		return kind
	}
	return 't'
}

// next reads one value of any kind. Decoder.SkipValue reads an object or array token by token, which takes longer.
func (w *walker) next() []byte {
	raw, err := w.dec.ReadValue()
	w.failed = w.failed || err != nil
	return raw
}

// token reads the beginning or the end of an object or array.
func (w *walker) token() {
	_, err := w.dec.ReadToken()
	w.failed = w.failed || err != nil
}

var nameOf = map[jsontext.Kind]string{
	'"': "a string", '0': "a number", 't': "true or false", '{': "an object", '[': "an array",
}

func (w *walker) object(s *schema) {
	w.token()
	start := w.dec.InputOffset() - 1
	var seen uint32 // a bit for each of s.members
	for w.dec.PeekKind() != '}' {
		name := w.next()
		if w.failed {
			return
		}
		i, known := s.find(name)
		if known {
			seen |= 1 << i
			w.member(&s.members[i])
			continue
		}
		if i >= 0 && s.wrong != deviates {
			w.report(s.wrong, "has a name that differs from %s only in case", s.members[i].name)
		}
		w.next()
	}
	w.token()
	for i := range s.members {
		if m := &s.members[i]; m.required && seen&(1<<i) == 0 {
			w.enter(step{name: m.name})
			w.report(m.value.wrong, "is missing")
			w.leave()
		}
	}
	if s == eventSchema {
		w.current.Bytes = w.payload[start:w.dec.InputOffset()]
	}
}

func (w *walker) member(m *member) {
	w.enter(step{name: m.name})
	if !m.reserved {
		w.value(m.value)
	} else if w.next(); !w.reference {
		w.report(rejectsEvent, "is the name of a reference to an event: resolve it first (package bus)")
	}
	w.leave()
}

func (w *walker) array(s *schema) {
	w.token()
	elements, deviations := 0, len(w.current.Deviations)
	for ; w.dec.PeekKind() != ']' && !w.failed; elements++ {
		w.enter(step{index: elements})
		if s.wrong == deviates && len(w.current.Deviations) > deviations {
			w.next()
		} else {
			w.value(s.elements)
		}
		w.leave()
	}
	w.token()
	if s.elements == eventSchema && elements == 0 {
		w.report(rejectsDelivery, "must hold at least one event")
	}
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
	at, _, ok := ParseTime(text) // without an offset, it is in UTC (section 2.3)
	if !ok {
		return "is no timestamp"
	}
	w.current.EventTimestamp = at
	return ""
}

// Path converts a JSON Pointer (RFC 6901) into an event to the notation eventData.identifiers.svcPostingIds[0]. A name
// that the interface does not define, and all that follows it, becomes one *, because such names can be data.
func Path(pointer jsontext.Pointer) string {
	path, whole := steps(nil, eventSchema, pointer)
	if !whole {
		path = append(path, step{name: "*"})
	}
	return where(path)
}

// steps appends a JSON Pointer into a value with that schema to a path, up to the first name that the interface does
// not define. It reports whether there is none.
func steps(path []step, at *schema, pointer jsontext.Pointer) (_ []step, whole bool) {
	for name := range pointer.Tokens() {
		if at != nil && at.kind == '[' {
			index, _ := strconv.Atoi(name)
			path, at = append(path, step{index: index}), at.elements
			continue
		}
		i := -1
		if at != nil {
			i = slices.IndexFunc(at.members, func(m member) bool { return m.name == name })
		}
		if i < 0 {
			return path, false
		}
		path, at = append(path, step{name: name}), at.members[i].value
	}
	return path, true
}
