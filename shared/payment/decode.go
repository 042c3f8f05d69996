package payment

import (
	"bytes"
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
	DeliveryID string // a UUID, as sent
	Events     []RawEvent
}

// RawEvent is one event of a delivery: the fields that Payhook uses, and the
// bytes as they were signed.
type RawEvent struct {
	EventName      string
	EventID        string // a UUID, as sent
	EventTimestamp time.Time
	Bytes          []byte // the JSON object; shares the payload's memory
}

// FieldError describes the problem of one field of a payload. It contains no
// value, and no name that the interface does not define, so its text can be
// logged and sent in a response.
type FieldError struct {
	Field   string // as in events[3].eventData.amount; "payload" for the whole
	Problem string // as in "must be a number"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// DecodeDelivery decodes and checks the payload of a webhook. The bytes of the
// events are parts of payload, which must not change while they are in use.
// Every error wraps a [*FieldError]. It is safe for concurrent use.
//
// It rejects:
//   - a payload that is not exactly one JSON object (RFC 8259);
//   - an object with duplicate names, at any depth;
//   - invalid UTF-8 and unpaired surrogates;
//   - a name that differs from a field of the interface only in case;
//   - a field with another JSON type than that of the interface, null included;
//   - an event with a field claimCheck, which is reserved for package claimcheck;
//   - a missing or empty deliveryId, events, eventId, eventName or eventTimestamp;
//   - an id that is not a UUID;
//   - an event name that is not GROUP.STATUS;
//   - an eventTimestamp that [ParseTime] does not parse. Without an offset, it is in UTC.
func DecodeDelivery(payload []byte) (Delivery, error) {
	w := newWalker(payload, false)
	defer w.free()
	if err := w.decode(deliverySchema); err != nil {
		return Delivery{}, err
	}
	return w.delivery, nil
}

// DecodeRawEvent decodes the detail of an event on the bus, as strictly as
// [DecodeDelivery], but accepts the field claimCheck: the detail is an event, or a
// reference to one. The event's bytes share raw's memory.
func DecodeRawEvent(raw []byte) (RawEvent, error) {
	return decodeEvent(raw, true)
}

func decodeEvent(raw []byte, reference bool) (RawEvent, error) {
	w := newWalker(raw, reference)
	defer w.free()
	if err := w.decode(eventSchema, step{name: "event"}); err != nil {
		return RawEvent{}, err
	}
	return w.delivery.Events[0], nil
}

// PeekIDs returns the ids in a payload as far as they can be read, and at most limit eventIds.
// The payload can be one that [DecodeDelivery] rejects.
func PeekIDs(payload []byte, limit int) (deliveryID string, eventIDs []string) {
	peek(payload, func(ofEvent bool, name, value string) bool {
		switch {
		case !IsUUID(value):
		case !ofEvent && name == "deliveryId":
			deliveryID = value
		case ofEvent && name == "eventId":
			eventIDs = append(eventIDs, value)
		}
		return len(eventIDs) < limit
	})
	return deliveryID, eventIDs
}

// PeekTime returns the latest eventTimestamp in a payload, or the zero time if none
// can be read. The payload need not be valid.
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

// peek calls found for every member of the payload and of its events, with the text of its
// value, or of the beginning of an object or array. It stops when found returns false or at
// the first error.
func peek(payload []byte, found func(ofEvent bool, name, value string) bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(payload), jsontext.AllowDuplicateNames(true),
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

// schema describes one value of the interface.
type schema struct {
	kind     jsontext.Kind               // of the value; 't' means true and false
	members  []member                    // of an object
	elements *schema                     // of an array
	whole    func(*walker, []byte) error // called with the bytes of a complete object
}

type member struct {
	name     string
	value    *schema
	required bool
	reserved bool                         // must not occur
	text     func(*walker, string) string // checks a string; returns the problem, or ""
}

var (
	textSchema   = &schema{kind: '"'}
	numberSchema = &schema{kind: '0'}
	boolSchema   = &schema{kind: 't'}

	deliverySchema = &schema{kind: '{', members: []member{
		{name: "deliveryId", value: textSchema, required: true, text: (*walker).deliveryID},
		{name: "events", value: &schema{kind: '[', elements: eventSchema}, required: true},
	}}

	eventSchema = &schema{kind: '{', whole: (*walker).event, members: []member{
		// A detail with this name refers to an event and is not one (package claimcheck).
		{name: "claimCheck", reserved: true},
		{name: "eventName", value: textSchema, required: true, text: (*walker).eventName},
		{name: "eventId", value: textSchema, required: true, text: (*walker).eventID},
		{name: "eventTimestamp", value: textSchema, required: true, text: (*walker).eventTimestamp},
		{name: "eventData", value: &schema{kind: '{', members: []member{
			{name: "identifiers", value: &schema{kind: '{', members: []member{
				{name: "paymentRequestId", value: textSchema},
				{name: "paymentEndToEndId", value: textSchema},
				{name: "svcUniquePaymentId", value: textSchema},
				{name: "railReferenceId", value: &schema{kind: '{'}},
				{name: "svcPostingIds", value: &schema{kind: '[', elements: textSchema}},
			}}},
			{name: "paymentExecutedValueDate", value: textSchema},
			{name: "amount", value: numberSchema},
			{name: "amountType", value: textSchema},
			{name: "paymentCurrency", value: textSchema},
			{name: "paymentStatus", value: &schema{kind: '{', members: []member{
				{name: "status", value: textSchema},
				{name: "statusTime", value: textSchema},
			}}},
			{name: "returns", value: flag("hasReturnDetails")},
			{name: "cancelations", value: flag("hasCancelationDetails")},
			{name: "cases", value: flag("hasLinkedCases")},
		}}},
	}}
)

func flag(name string) *schema {
	return &schema{kind: '{', members: []member{{name: name, value: boolSchema}}}
}

// walker reads a payload once, token by token, and checks it against a schema.
type walker struct {
	payload  []byte
	buffer   bytes.Buffer
	dec      jsontext.Decoder
	path     []step // the current value
	delivery Delivery
	current  RawEvent

	reference bool // accepts the reserved field
}

// walkers reuses walkers: most allocations of decoding are a decoder's buffers for
// names.
var walkers = sync.Pool{New: func() any { return new(walker) }}

func newWalker(payload []byte, reference bool) *walker {
	w := walkers.Get().(*walker)
	w.payload, w.reference = payload, reference
	// A bytes.Buffer is decoded in place, without a copy.
	w.buffer = *bytes.NewBuffer(payload)
	w.dec.Reset(&w.buffer)
	return w
}

func (w *walker) free() {
	w.payload, w.path, w.delivery, w.current = nil, w.path[:0], Delivery{}, RawEvent{}
	w.buffer = bytes.Buffer{}
	w.dec.Reset(&w.buffer) // releases the payload
	walkers.Put(w)
}

// step selects a member of an object by its name, or an element of an array by its
// index if the name is empty.
type step struct {
	name  string
	index int
}

func (w *walker) enter(s step) { w.path = append(w.path, s) }
func (w *walker) leave()       { w.path = w.path[:len(w.path)-1] }

// problem returns an error about the current value.
func (w *walker) problem(format string, args ...any) error {
	var field strings.Builder
	for i, s := range w.path {
		switch {
		case s.name == "":
			fmt.Fprintf(&field, "[%d]", s.index)
		case i > 0:
			field.WriteString("." + s.name)
		default:
			field.WriteString(s.name)
		}
	}
	if field.Len() == 0 {
		field.WriteString("payload")
	}
	return fmt.Errorf("payment: %w", &FieldError{Field: field.String(), Problem: fmt.Sprintf(format, args...)})
}

// decode reads the only value of the payload; root is its name, if it has one.
func (w *walker) decode(s *schema, root ...step) error {
	w.path = append(w.path, root...)
	if err := w.value(s); err != nil {
		return err
	}
	if _, err := w.dec.ReadToken(); err != io.EOF {
		return w.problem("has data after its end, at byte %d", w.dec.InputOffset())
	}
	return nil
}

// value reads one value. After an error, the path leads to the value with the problem.
func (w *walker) value(s *schema) error {
	kind := w.dec.PeekKind()
	if kind == 'f' {
		kind = 't'
	}
	if kind != s.kind {
		if err := w.skip(); err != nil {
			return err
		}
		return w.problem("must be %s", nameOf[s.kind])
	}
	switch s.kind {
	case '{':
		return w.object(s)
	case '[':
		return w.array(s)
	}
	return w.skip()
}

// skip reads one value of any kind. Decoder.SkipValue reads an object or array token by
// token, which takes longer.
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
			if err := w.member(&s.members[i]); err != nil {
				return err
			}
		case i >= 0:
			return w.problem("has a name that differs from %s only in case", s.members[i].name)
		default:
			if err := w.skip(); err != nil {
				return err
			}
		}
	}
	w.token()
	for i := range s.members {
		if m := &s.members[i]; m.required && seen&(1<<i) == 0 {
			w.enter(step{name: m.name})
			return w.problem("is missing")
		}
	}
	if s.whole != nil {
		return s.whole(w, w.payload[start:w.dec.InputOffset()])
	}
	return nil
}

func (w *walker) member(m *member) (err error) {
	w.enter(step{name: m.name})
	switch {
	case m.reserved && !w.reference:
		return w.problem("is the name of a reference to an event: resolve it first (package claimcheck)")
	case m.reserved:
		err = w.skip()
	case m.text == nil || w.dec.PeekKind() != '"':
		err = w.value(m.value)
	default:
		raw, err := w.dec.ReadValue()
		if err != nil {
			return w.malformed(err)
		}
		if problem := m.text(w, unquote(raw)); problem != "" {
			return w.problem("%s", problem)
		}
	}
	if err == nil {
		w.leave()
	}
	return err
}

func (w *walker) array(s *schema) error {
	w.token()
	elements := 0
	for ; w.dec.PeekKind() != ']'; elements++ {
		w.enter(step{index: elements})
		if err := w.value(s.elements); err != nil {
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

// find returns the index of the member that a raw JSON string names, and true. If
// there is none, it returns false, and the index of a member whose name differs
// only in case, or -1.
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

// malformed replaces an error of the JSON decoder, whose text may contain parts of
// the payload, by one that does not.
func (w *walker) malformed(err error) error {
	offset := w.dec.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = syntax.ByteOffset
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return w.problem("has a name twice in one object, at byte %d", offset)
	}
	return w.problem("is not well-formed JSON in UTF-8, at byte %d", offset)
}

func (w *walker) deliveryID(text string) string {
	w.delivery.DeliveryID = text
	return wrongID(text)
}

func (w *walker) eventID(text string) string {
	w.current.EventID = text
	return wrongID(text)
}

func wrongID(text string) string {
	if !IsUUID(text) {
		return "must be a UUID"
	}
	return ""
}

// nameCharacters are the characters of the parts of an event name.
const nameCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-"

// eventName accepts the form GROUP.STATUS of section 2.3: two or more parts, joined by
// dots. Its maximum length is that of the detail-type of an EventBridge event, which the
// name becomes (AWS, PutEventsRequestEntry).
func (w *walker) eventName(text string) string {
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

func (w *walker) eventTimestamp(text string) string {
	t, _, err := ParseTime(text)
	w.current.EventTimestamp = t
	if err != nil {
		return "must be a timestamp, as in 2026-01-31T12:00:00.000Z"
	}
	return ""
}

func (w *walker) event(raw []byte) error {
	w.current.Bytes = raw
	w.delivery.Events = append(w.delivery.Events, w.current) // an event has all its members
	return nil
}

// Path converts a JSON Pointer (RFC 6901) into an event to the notation
// eventData.identifiers.svcPostingIds[0]. A name that the interface does not
// define, and all that follows it, becomes one *, because such names can be data.
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
