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
	"uuid"

	"payhook.example/shared/paymenttest"
)

// eventOf returns an event with these members beside its name, id and timestamp.
func eventOf(members string) string {
	return `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"` + uuid.New().String() +
		`","eventTimestamp":"2026-01-31T12:00:00.123Z",` + members + "}"
}

// payloadOf returns the payload of a delivery of events.
func payloadOf(events ...string) []byte {
	var raw [][]byte
	for _, e := range events {
		raw = append(raw, []byte(e))
	}
	return paymenttest.RawDelivery(uuid.New().String(), raw...)
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
