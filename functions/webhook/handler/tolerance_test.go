package handler

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
)

// eventOf returns an event with these members beside its name, id and timestamp.
func eventOf(members string) string {
	return eventAt(`"2026-01-31T12:00:00.123Z"`, members)
}

// eventAt returns an event with that timestamp.
func eventAt(timestamp, members string) string {
	text := `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"` + uuid.New().String() + `","eventTimestamp":` +
		timestamp
	if members != "" {
		text += "," + members
	}
	return text + "}"
}

// payloadOf returns the payload of a delivery of events.
func payloadOf(events ...string) []byte {
	var raw [][]byte
	for _, e := range events {
		raw = append(raw, []byte(e))
	}
	return paymenttest.RawDelivery(uuid.New().String(), raw...)
}

// The sender never sends again, so what is authentic and has an identity is published as it was signed. Who
// consumes it decides about its content.
func TestWhatIsAuthenticAndHasAnIdentityIsPublished(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)
	data := func(members string) string { return `"eventData":{` + members + `}` }
	nested := strings.Repeat(`{"a":[`, 400) + "null" + strings.Repeat(`]}`, 400)
	type test struct {
		event     string
		at        time.Time // on the bus; zero for none
		deviation string
	}
	tests := []test{
		{eventOf(data(`"paymentExecutedValueDate":null,"amount":1.10`)), at, ""},
		{eventOf(data(`"returns":null,"cancelations":null,"cases":null`)), at, ""},
		{eventOf(data(`"identifiers":{"paymentEndToEndId":null,"railReferenceId":null,"svcPostingIds":null}`)), at, ""},
		{eventOf(data(`"identifiers":{"svcPostingIds":[null],"paymentRequestId":null,"svcUniquePaymentId":null}`)),
			at, ""},
		{eventOf(`"eventData":null`), at, ""},
		{eventOf(data("")), at, ""},
		{eventOf(""), at, ""},
		{eventOf(data(`"paymentStatus":{"status":"REJECTED","statusTime":null}`)), at, ""},
		{eventOf(data(`"paymentStatus":{"status":"PENDING","statusTime":""}`)), at, ""},
		{eventOf(data(`"paymentStatus":null,"amount":null,"amountType":null,"paymentCurrency":null`)), at, ""},
		{eventOf(data(`"amount":1e400,"other":-0.0`)), at, ""},
		{eventOf(data(`"Amount":1,"AMOUNT":"x","amount":2,"claimCheck":{},"eventid":1`)), at, ""},
		{eventOf(data(`"other":{"eventId":7,"deliveryId":[]},"":{}`) + `,"other":null,"":1`), at, ""},
		{eventOf(data(`"identifiers":{"railReferenceId":` + nested + `}`)), at, ""},
		{eventOf(data(`"amount":"1250.00"`)), at, "eventData.amount"},
		{eventOf(data(`"identifiers":{"railReferenceId":"20260131MMQFMP","svcPostingIds":[123]}`)), at,
			"eventData.identifiers.railReferenceId"},
		{eventOf(data(`"identifiers":{"svcPostingIds":["a",123,4]}`)), at, "eventData.identifiers.svcPostingIds[1]"},
		{eventOf(data(`"identifiers":[{"svcPostingIds":1}],"amount":[]`)), at, "eventData.identifiers"},
		{eventOf(data(`"cases":{"hasLinkedCases":"true"}`)), at, "eventData.cases.hasLinkedCases"},
		{eventOf(data(`"paymentStatus":{"statusTime":1769860800123}`)), at, "eventData.paymentStatus.statusTime"},
		{eventOf(`"eventData":["x"]`), at, "eventData"},
		{eventAt(`"yesterday"`, `"eventData":7`), time.Time{}, "eventTimestamp"},
		{eventAt("1769860800123", ""), time.Time{}, "eventTimestamp"},
		{eventAt("null", ""), time.Time{}, "eventTimestamp"},
		{eventAt(`"2026-W05-6"`, ""), time.Time{}, "eventTimestamp"},
		{eventAt(`"2026-01-31"`, ""), time.Time{}, "eventTimestamp"},
		{strings.Replace(eventAt("0", ""), `,"eventTimestamp":0`, "", 1), time.Time{}, "eventTimestamp"},
	}
	for _, timestamp := range []string{"2026-01-31T12:00:00.123+0000", "2026-01-31T12:00:00.123+00",
		"2026-01-31T12:00:00.123", "2026-01-31T14:00:00.123+02:00", "20260131T120000.123Z"} {
		tests = append(tests, test{eventAt(`"`+timestamp+`"`, ""), at, ""})
	}
	tests = append(tests, test{eventAt(`"2026-01-31T12:00Z"`, ""), at.Truncate(time.Second), ""})

	for _, c := range tests {
		e := newEndpoint(t, nil)
		if got := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payloadOf(c.event)})); got.StatusCode != 200 {
			t.Errorf("%s: %d %s", c.event, got.StatusCode, got.Body)
			continue
		}
		var deviations, metric any // nil for none
		if c.deviation != "" {
			deviations, metric = []any{c.deviation}, 1.0
		}
		line := e.line(t)
		if !cmp.Equal(line["deviations"], deviations) || line["Deviations"] != metric || line["level"] != nil {
			t.Errorf("%s: the line is %v", c.event, line)
		}
		entries := e.bus.Entries()
		if len(entries) != 1 || string(entries[0].Detail) != c.event || !entries[0].Time.Equal(c.at) ||
			len(e.parking.Keys()) > 0 {
			t.Errorf("%s: %+v is on the bus", c.event, entries)
		}
	}
}

func TestAByteOrderMarkBeforeThePayloadIsSkipped(t *testing.T) {
	e, event := newEndpoint(t, nil), eventOf("")
	r := e.request(t, paymenttest.Webhook{Payload: append([]byte("\ufeff"), payloadOf(event)...)})
	if got := e.handle(t, r); got.StatusCode != 200 || len(e.bus.Entries()) != 1 ||
		string(e.bus.Entries()[0].Detail) != event {
		t.Errorf("%d %s", got.StatusCode, got.Body)
	}
	r.Body = strings.TrimPrefix(r.Body, "\ufeff")
	if got := e.handle(t, r).StatusCode; got != 401 {
		t.Errorf("without the mark, it is answered %d", got)
	}
}

// The answer and the line name the first of the events that are not published, and have the numbers of all.
func TestEventsWithoutIdentityAreAnswered(t *testing.T) {
	e := newEndpoint(t, map[string]string{"PAYHOOK_SUCCESS_STATUS": "204"})
	first := eventOf(`"eventData":{"amount":1}`)
	e.handle(t, e.request(t, paymenttest.Webhook{Payload: payloadOf(first)}))
	conflicting := strings.Replace(first, `"amount":1`, `"amount":"2"`, 1)
	good, bad := eventOf(""), strings.Replace(eventOf(""), `"eventId":"`, `"eventId":"CANARY`, 1)
	r := e.request(t, paymenttest.Webhook{Payload: payloadOf(good, bad, first, "null", conflicting)})
	got := e.handle(t, r)
	want := map[string]any{"title": "Unprocessable Entity", "status": 422.0,
		"detail":   "events[1].eventId: must be a UUID",
		"recorded": 1.0, "duplicates": 1.0, "conflicts": 1.0, "invalid": 2.0}
	body := decoded(t, []byte(got.Body))
	if body["deliveryId"] == nil {
		t.Errorf("%s", got.Body)
	}
	delete(body, "deliveryId")
	if diff := cmp.Diff(want, body); got.StatusCode != 422 || diff != "" {
		t.Errorf("%d, %s", got.StatusCode, diff)
	}
	line := e.line(t)
	for field, want := range map[string]any{"outcome": "invalid", "status": 422.0, "level": "ERROR", "recorded": 1.0,
		"duplicates": 1.0, "invalid": 2.0, "Conflicts": 1.0, "Parked": 2.0, "Invalid": 1.0, "ClientErrors": 1.0,
		"cause": "payment: events[1].eventId: must be a UUID", "Accepted": nil} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v", field, line[field], want)
		}
	}
	for field, reason := range map[string]string{"parked": "invalid/", "alsoParked": "conflict/"} {
		if name, _ := line[field].(string); !strings.HasPrefix(name, reason) {
			t.Errorf("%s is %v", field, line[field])
		}
	}
	if strings.Contains(e.log.String()+got.Body, "CANARY") {
		t.Error("a value is in the log or the answer")
	}
	if len(e.bus.Entries()) != 2 {
		t.Errorf("%d are on the bus", len(e.bus.Entries()))
	}
	// Sent again, it is counted as parked once.
	if e.handle(t, r); e.line(t)["Parked"] != nil {
		t.Errorf("%v", e.line(t))
	}
}

// For the person who looks for a webhook that was not found authentic.
func TestTheIDOfAForgedWebhookIsLoggedWhereverItIs(t *testing.T) {
	const id = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	last := `{"events":[` + eventOf("") + `,{"deliveryId":"x"},7],"deliveryId":"` + id + `"}`
	for payload, want := range map[string]any{
		last: id, "\ufeff" + last: id, string(paymenttest.RawDelivery(id)): id,
		`{"deliveryId":"CANARY","events":[]}`: nil, `[]`: nil, "x": nil,
		`{"x":"` + strings.Repeat("x", 64<<10) + `","deliveryId":"` + id + `"}`: nil,
	} {
		e := newEndpoint(t, nil)
		r := e.request(t, paymenttest.Webhook{Payload: []byte(payload)})
		r.Body += " "
		if got := e.handle(t, r).StatusCode; got != 401 || e.line(t)["unverifiedDeliveryId"] != want {
			t.Errorf("%.80s: %d, %v", payload, got, e.line(t))
		}
		e.nothingHappened(t)
	}
}

// verifies reports whether a signature verifies over exactly these bytes. It shares no code with the function.
func verifies(key *rsa.PublicKey, payload []byte, timestamp, keyID, signature string) bool {
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(signature, "="))
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", payload, timestamp, keyID))
	return err == nil && rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], decoded) == nil
}

// However a request is changed, it has no effect unless its exact bytes verify.
func FuzzNoRequestHasAnEffectUnlessItsExactBytesVerify(f *testing.F) {
	const header, at, kid = "x-svc-signature", "x-svc-timestamp", "x-svc-key-id"
	shared := newEndpoint(f, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
	event := eventOf(`"eventData":{"amount":1.10}`)
	for _, payload := range [][]byte{payloadOf(event), append([]byte("\ufeff"), payloadOf(event)...), []byte("{}"),
		payloadOf("null", event), payloadOf(strings.Replace(event, "1.10", "2", 1), event), []byte("\xff"),
		[]byte("[]")} {
		r := shared.request(f, paymenttest.Webhook{Payload: payload})
		f.Add(payload, r.Headers[at], r.Headers[kid], r.Headers[header])
		f.Add(append(bytes.Clone(payload), ' '), r.Headers[at], r.Headers[kid], r.Headers[header])
		f.Add(bytes.TrimPrefix(payload, []byte("\ufeff")), r.Headers[at], r.Headers[kid], r.Headers[header]+"==")
		f.Add(payload, r.Headers[at], strings.ToUpper(r.Headers[kid]), r.Headers[header])
		f.Add(payload, r.Headers[at]+"\n", r.Headers[kid], r.Headers[header])
		f.Add(payload, " "+r.Headers[at], r.Headers[kid], r.Headers[header])
	}
	f.Fuzz(func(t *testing.T, payload []byte, timestamp, keyID, signature string) {
		for _, text := range []*string{&timestamp, &keyID, &signature} {
			*text = strings.ToValidUTF8(*text, "") // in JSON, AWS sends nothing else
		}
		e := newServices()
		e.start(t, shared.service.URL, &http.Client{}, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		r := unsigned(payload)
		r.Headers = map[string]string{header: signature, at: timestamp, kid: keyID}
		answer := e.handle(t, r)
		if verifies(&signingKey().Private.PublicKey, payload, timestamp, keyID, signature) {
			if published := len(e.bus.Entries()) > 0; answer.StatusCode == 200 && !published {
				t.Fatalf("%d, and nothing is on the bus", answer.StatusCode)
			}
			return
		}
		if answer.StatusCode < 400 {
			t.Fatalf("%d %s", answer.StatusCode, answer.Body)
		}
		e.nothingHappened(t)
	})
}
