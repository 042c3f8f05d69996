package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"uuid"

	"payhook.example/shared/bus"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// largest is the largest payload of a function URL.
const largest = 6 << 20

// inputs returns authentic payloads of kinds that can break receivers.
func inputs(t testing.TB) map[string]func() []byte {
	t.Helper()
	id := uuid.New().String()
	one := paymenttest.Event()
	with := func(old, replacement string) []byte {
		payload := paymenttest.Delivery(one)
		changed := bytes.Replace(payload, []byte(old), []byte(replacement), 1)
		if bytes.Equal(payload, changed) {
			t.Fatalf("%s is not in the sample", old)
		}
		return changed
	}
	bomb := func() []byte {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		if _, err := io.Copy(zip, io.LimitReader(zeros{}, 64<<20)); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	const xml = `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`
	fill := func(prefix, part, suffix string) []byte {
		return []byte(prefix + strings.Repeat(part, (largest-len(prefix)-len(suffix))/len(part)) + suffix)
	}
	head := `{"deliveryId":"` + id + `","events":`
	return map[string]func() []byte{
		"nested 9,000 deep": func() []byte {
			return with(`"railReferenceId":{`,
				`"railReferenceId":{"a":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000))
		},
		"nested 10,000 deep": func() []byte {
			return with(`"railReferenceId":{`,
				`"railReferenceId":{"a":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000))
		},
		"six million opened":         func() []byte { return fill("", "[", "") },
		"six million opened objects": func() []byte { return fill("", `{"a":`, "") },
		"millions of empty events":   func() []byte { return fill(head+"[", "{},", "{}]}") },
		"millions of numbers":        func() []byte { return fill(head+"[", "1,", "1]}") },
		"millions of unknown names": func() []byte {
			return fill(head+`[`+string(paymenttest.Encode(one))+`],"x":[`,
				`{"a":1},`, "{}]}")
		},
		"one name, millions of times": func() []byte { return fill("{", `"a":1,`, `"b":1}`) },
		"a string of six million":     func() []byte { return fill(`{"deliveryId":"`, "x", `"}`) },
		"a string of escapes":         func() []byte { return fill(`{"deliveryId":"`, `\u0041`, `"}`) },
		"empty strings": func() []byte {
			return []byte(`{"deliveryId":"","events":[{"eventId":"","eventName":"","eventTimestamp":""}]}`)
		},
		"a number of 1,000 digits": func() []byte { return with(`"amount":`, `"amount":`+strings.Repeat("9", 1000)) },
		"a number of 1,000 decimals": func() []byte {
			return with(`"amount":`,
				`"amount":0.`+strings.Repeat("1", 1000)+`,"other":`)
		},
		"a huge exponent":         func() []byte { return with(`"amount":`, `"amount":1e999999999,"other":`) },
		"not UTF-8, overlong":     func() []byte { return with("RELEASED", "RELEASED\xc0\xaf") },
		"not UTF-8, cut":          func() []byte { return with("RELEASED", "RELEASED\xe2\x82") },
		"not UTF-8, surrogate":    func() []byte { return with("RELEASED", "RELEASED\xed\xa0\x80") },
		"not UTF-8, past the end": func() []byte { return with("RELEASED", "RELEASED\xf4\x90\x80\x80") },
		"UTF-16":                  func() []byte { return []byte("{\x00\"\x00d\x00") },
		"byte order mark": func() []byte {
			return append([]byte("\xef\xbb\xbf"),
				paymenttest.Delivery(one)...)
		},
		"NUL bytes":             func() []byte { return make([]byte, 1000) },
		"white space":           func() []byte { return fill("", " ", "") },
		"compressed":            func() []byte { return bomb() },
		"XML":                   func() []byte { return []byte(xml) },
		"form":                  func() []byte { return []byte("deliveryId=" + id) },
		"as many events as fit": func() []byte { return paymenttest.Delivery(paymenttest.Events(5000)...) },
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Every authentic payload is recorded or parked, and answered.
func TestEveryAuthenticPayloadIsRecordedOrParked(t *testing.T) {
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			payload := input()
			if len(payload) > largest {
				t.Fatalf("%d bytes are more than Lambda accepts", len(payload))
			}
			e := newEndpoint(t, nil)
			e.maxPayloadBytes = largest
			r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
			delivery, err := payment.DecodeDelivery(payload)
			if err != nil {
				if r.StatusCode != 422 {
					t.Fatalf("%d %s", r.StatusCode, r.Body)
				}
				proves(t, e.parked(t), payload)
				return
			}
			published := len(delivery.Events)
			for _, event := range delivery.Events {
				if bus.Check(event.Bytes) != nil {
					published--
					if p := e.parked(t); !bytes.Equal(p.Event, event.Bytes) {
						t.Errorf("parked with the cause %s", p.Cause)
					}
				}
			}
			// On a slow machine, some events are left to redrive.
			pending := 0
			for _, item := range e.db.Items("ledger") {
				if item[names.LedgerPendingShard] != nil {
					pending++
				}
			}
			if r.StatusCode != 200 || len(e.db.Items("ledger")) != len(delivery.Events) ||
				len(e.bus.Entries())+pending != published {
				t.Errorf("%d %s; %d recorded, %d on the bus, %d pending", r.StatusCode, r.Body,
					len(e.db.Items("ledger")), len(e.bus.Entries()), pending)
			}
		})
	}
}

// peakEnv makes a test process handle one payload, so that its memory can be measured
// separately.
const peakEnv = "PAYHOOK_TEST_PEAK"

func TestThePeakOfMemoryIsBelowTheLimit(t *testing.T) {
	if name := os.Getenv(peakEnv); name != "" {
		e := newEndpoint(t, nil)
		e.maxPayloadBytes = largest
		payload := []byte("{}")
		if name != "nothing" {
			payload = inputs(t)[name]()
		}
		e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip("the peak is read from /proc")
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		fmt.Println("peak", strings.Fields(peak)[0])
		return
	}
	peak := func(name string) (mebibytes int) {
		t.Helper()
		child := exec.CommandContext(t.Context(), os.Args[0],
			"-test.run=^TestThePeakOfMemoryIsBelowTheLimit$", "-test.v")
		child.Env = append(os.Environ(), peakEnv+"="+name)
		out, err := child.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, text, ok := strings.Cut(string(out), "peak ")
		if !ok {
			t.Skip("the peak is read from /proc")
		}
		if _, err := fmt.Sscan(text, &mebibytes); err != nil {
			t.Fatal(err)
		}
		return mebibytes >> 10
	}
	var memory int
	if _, err := fmt.Sscan(settings.WebhookMemory.Default, &memory); err != nil {
		t.Fatal(err)
	}
	// The test process also creates and signs the payload and has AWS services in memory.
	base := peak("nothing")
	for _, name := range []string{"millions of empty events", "millions of unknown names", "a string of escapes",
		"as many events as fit"} {
		got := peak(name)
		t.Logf("%s: %d MiB; a small payload takes %d", name, got, base)
		if got > memory*3/4 {
			t.Errorf("%s takes %d MiB of %d", name, got, memory)
		}
	}
}
