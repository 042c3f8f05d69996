package payment

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
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
	// Deviations are those of the [Event], and eventTimestamp if EventTimestamp is zero.
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
	var top struct {
		DeliveryID string             `json:"deliveryId"`
		Events     []element          `json:"events"`
		Others     map[string]skipped `json:",embed"`
	}
	if err := unmarshal("payload", payload, &top); err != nil {
		return Delivery{}, err
	}
	text := otherCase(top.Others, "deliveryId", "events")
	switch {
	case text != "":
		return Delivery{}, problem("payload", text)
	case !IsUUID(top.DeliveryID):
		return Delivery{}, problem("deliveryId", notUUID)
	case len(top.Events) == 0:
		return Delivery{}, problem("events", "must be an array of at least one event")
	}
	d := Delivery{DeliveryID: top.DeliveryID, Events: make([]RawEvent, 0, len(top.Events))}
	for i := range top.Events {
		e := &top.Events[i]
		field, text := e.problem(false)
		if text == "" {
			d.Events = append(d.Events, e.raw())
			continue
		}
		if d.Err == nil {
			d.Err = problem(fmt.Sprintf("events[%d]%s", i, field), text)
		}
		rejected := Rejected{Position: i}
		if IsUUID(e.EventID) {
			rejected.EventID = e.EventID
		}
		d.Rejected = append(d.Rejected, rejected)
	}
	if len(d.Events) == 0 {
		return Delivery{}, d.Err
	}
	return d, nil
}

// DecodeRawEvent decodes the detail of an event on the bus as [DecodeDelivery] decodes an element of events, but
// accepts the field claimCheck: the detail is an event, or a reference to one. The event's bytes share raw's memory.
func DecodeRawEvent(raw []byte) (RawEvent, error) {
	e, err := decodeEvent(raw, true)
	if err != nil {
		return RawEvent{}, err
	}
	return e.raw(), nil
}

func decodeEvent(raw []byte, reference bool) (element, error) {
	var e element
	if err := unmarshal("event", raw, &e); err != nil {
		return element{}, err
	}
	if field, text := e.problem(reference); text != "" {
		return element{}, problem("event"+field, text)
	}
	return e, nil
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

// element is an element of a delivery's events, whatever it is.
type element struct {
	Event
	Reference skipped            `json:"claimCheck"`
	Others    map[string]skipped `json:",embed"`

	bytes []byte
	sent  string // eventTimestamp
}

// skipped is a value that is not read: true if it is there.
type skipped bool

// reader is the state of one call of unmarshal.
type reader struct {
	options json.Options // its method value
	text    []byte
	current *element
	depth   int // the tokens of the JSON Pointer to the current element
}

// readers reuses readers: package json remembers for each option how it reads a type.
var readers = sync.Pool{New: func() any {
	r := new(reader)
	r.options = json.WithUnmarshalers(json.UnmarshalFromFunc(r.value))
	return r
}}

// space is what can stand before a value.
const space = " \t\r\n,"

// unmarshal reads a text of the service with package json, which rejects every text that is ambiguous. A value of
// another type than in the interface is left out. field is the name of the text.
func unmarshal(field string, payload []byte, v any) error {
	r := readers.Get().(*reader)
	defer func() { // without the payload
		*r = reader{options: r.options}
		readers.Put(r)
	}()
	r.text, r.current = WithoutBOM(payload), new(element)
	err := json.Unmarshal(r.text, v, r.options)
	switch {
	case err == nil && bytes.HasPrefix(bytes.TrimLeft(r.text, space), []byte("{")):
		return nil
	case err == nil:
		return problem(field, notObject)
	}
	text, at := "is not well-formed JSON in UTF-8", int64(len(r.text))
	if errors.Is(err, jsontext.ErrDuplicateName) {
		text = "has a name twice in one object"
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	return problem(field, fmt.Sprintf("%s, at byte %d", text, int64(len(payload)-len(r.text))+at))
}

func problem(field, text string) error {
	return fmt.Errorf("payment: %w", &FieldError{Field: field, Problem: text})
}

// value reads what package json would read otherwise: elements, times, and values of another type than v has.
func (r *reader) value(dec *jsontext.Decoder, v any) error {
	kind, want := kindOf(dec), jsontext.Kind('{') // also of railReferenceId
	switch v := v.(type) {
	case *skipped:
		*v = true
		_, err := dec.ReadValue() // faster than SkipValue
		return err
	case *element:
		return r.element(dec, v)
	case *string, *rawText, *time.Time:
		want = '"'
	case *Amount:
		want = '0'
	case *bool, **bool:
		want = 't'
	case *[]string, *[]element:
		want = '['
	}
	at, isTime := v.(*time.Time)
	if kind == want && !isTime {
		return errors.ErrUnsupported // package json reads it
	}
	value, err := dec.ReadValue()
	if err != nil || kind == 'n' {
		return err
	}
	if kind == want {
		text, _ := jsontext.AppendUnquote(nil, value)
		if at == &r.current.EventTimestamp {
			r.current.sent = string(text)
		}
		var ok bool
		if *at, _, ok = ParseTime(string(text)); ok { // without an offset, it is in UTC (section 2.3)
			return nil
		}
	}
	r.deviation(dec)
	return nil
}

func (r *reader) element(dec *jsontext.Decoder, e *element) error {
	type members element // is read without this method
	r.current, r.depth = e, dec.StackDepth()
	start := dec.InputOffset()
	err := json.UnmarshalDecode(dec, (*members)(e))
	e.bytes = bytes.TrimLeft(r.text[start:dec.InputOffset()], space)
	return err
}

// deviation notes the path to the last value. Of an array, it notes only the first one.
func (r *reader) deviation(dec *jsontext.Decoder) {
	paths := &r.current.Deviations
	parent, _ := dec.StackIndex(dec.StackDepth())
	if parent == '[' && len(*paths) > 0 && strings.HasSuffix((*paths)[len(*paths)-1], "]") {
		return
	}
	*paths = append(*paths, pathOf(dec.StackPointer(), r.depth))
}

// kindOf returns the kind of the next value; 't' means true and false.
func kindOf(dec *jsontext.Decoder) jsontext.Kind {
	if kind := dec.PeekKind(); kind != 'f' {
		return kind
	}
	return 't'
}

const (
	notObject = "must be an object"
	notUUID   = "must be a UUID"
)

// problem returns why an element has no identity, or "". The field is that of the element: "" or .eventId.
func (e *element) problem(reference bool) (field, text string) {
	text = otherCase(e.Others, "eventId", "eventName", "eventTimestamp", "eventData", "claimCheck")
	switch {
	case !bytes.HasPrefix(e.bytes, []byte("{")):
		return "", notObject
	case text != "":
		return "", text
	case bool(e.Reference) && !reference:
		// A detail with this name refers to an event and is not one (package bus).
		return ".claimCheck", "is the name of a reference to an event: resolve it first (package bus)"
	case !IsUUID(e.EventID):
		return ".eventId", notUUID
	case !isEventName(e.EventName):
		return ".eventName", "must be GROUP.STATUS, in letters, digits, '_', '-' and '.', at most 128 bytes"
	}
	return "", ""
}

// otherCase returns the problem of a name that differs from one of names only in case, or "".
func otherCase(others map[string]skipped, names ...string) string {
	for _, name := range names {
		for other := range others {
			if strings.EqualFold(other, name) {
				return "has a name that differs from " + name + " only in case"
			}
		}
	}
	return ""
}

// isEventName accepts the form GROUP.STATUS of section 2.3: two or more parts, joined by dots. Its maximum length is
// that of the detail-type of an EventBridge event, which the name becomes (AWS, PutEventsRequestEntry).
func isEventName(text string) bool {
	const characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-"
	for part := range strings.SplitSeq(text, ".") {
		if part == "" || strings.Trim(part, characters) != "" {
			return false
		}
	}
	return len(text) <= 128 && strings.Contains(text, ".")
}

// raw returns an element with identity as an event.
func (e *element) raw() RawEvent {
	const at = "eventTimestamp"
	if e.EventTimestamp.IsZero() && !slices.Contains(e.Deviations, at) { // absent, or null
		e.Deviations = append(e.Deviations, at)
	}
	return RawEvent{EventName: e.EventName, EventID: e.EventID, EventTimestamp: e.EventTimestamp,
		SentTimestamp: routable(e.sent), Amount: routable(string(e.EventData.Amount)),
		Currency: routable(e.EventData.PaymentCurrency), Bytes: e.bytes, Deviations: e.Deviations}
}

// routable returns a text, or "" if it is too long for the routing data.
func routable(text string) string {
	if len(text) > maxRoutingToken {
		return ""
	}
	return text
}

// named are the names of the interface within an event.
var named = strings.Fields(`eventName eventId eventTimestamp eventData identifiers paymentRequestId paymentEndToEndId
	svcUniquePaymentId railReferenceId svcPostingIds paymentExecutedValueDate amount amountType paymentCurrency
	paymentStatus status statusTime returns hasReturnDetails cancelations hasCancelationDetails cases hasLinkedCases
	claimCheck`)

// Path converts a JSON Pointer (RFC 6901) into an event to the notation eventData.identifiers.svcPostingIds[0]. A name
// that the interface does not define, and all that follows it, becomes one *, because such names can be data.
func Path(pointer jsontext.Pointer) string { return pathOf(pointer, 0) }

// pathOf leaves the first tokens out.
func pathOf(pointer jsontext.Pointer, skip int) string {
	var path []string
	for name := range pointer.Tokens() {
		last := len(path) - 1
		switch {
		case skip > 0:
			skip--
		case last >= 0 && path[last] == "svcPostingIds":
			path[last] += "[" + name + "]"
		case !slices.Contains(named, name):
			return strings.Join(append(path, "*"), ".")
		default:
			path = append(path, name)
		}
	}
	return strings.Join(path, ".")
}
