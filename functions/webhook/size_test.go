package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"uuid"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// A function URL's JSON for a request must be less than 6 MB (AWS, "Lambda
// quotas").
func TestTheSafePayloadAlwaysFitsIntoAnInvocation(t *testing.T) {
	const limit = 6 << 20
	signed := newEndpoint(t, nil).request(t, paymenttest.Webhook{Payload: []byte("{}")})
	signed.RawQueryString, signed.Headers["x-padding"] = strings.Repeat("q", 8<<10), ""
	for i := range 100 {
		signed.Headers[fmt.Sprintf("x-header-%d", i)] = strings.Repeat("h", 400)
	}
	size := func(payload []byte, asBase64 bool) int {
		r := signed
		r.Body, r.IsBase64Encoded = string(payload), asBase64
		if asBase64 {
			r.Body = base64.StdEncoding.EncodeToString(payload)
		}
		text, err := json.Marshal(r) // of encoding/json/v2: escapes what RFC 8259 requires
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	signed.Headers["x-padding"] = strings.Repeat("h", 64<<10+1-size([]byte("x"), false)) // the rest has 64 KiB
	for name, part := range map[string]string{
		"quotation marks": `"`, "backslashes": `\`, "line breaks": "\n", "tabs": "\t", "letters": "x", "two bytes": "é",
		"three bytes": "€", "four bytes": "😀",
	} {
		payload := []byte(strings.Repeat(part, settings.SafePayloadBytes/len(part)))
		for _, asBase64 := range []bool{false, true} {
			if got := size(payload, asBase64); got >= limit {
				t.Errorf("%s, base64 %t: %d bytes", name, asBase64, got)
			}
		}
	}
	// The limit is not lower than it has to be.
	if got := size(bytes.Repeat([]byte{'"'}, settings.SafePayloadBytes+32<<10), false); got < limit {
		t.Errorf("32 KiB more are %d bytes", got)
	}
	// functions/README.md states this of larger ones.
	one := paymenttest.Encode(paymenttest.Event())
	fits := func(megabytes float64, asBase64 bool) bool {
		payload := bytes.Repeat(one, int(megabytes*(1<<20))/len(one))
		return size(payload, asBase64) < limit
	}
	if !fits(5, false) || fits(5.6, false) || !fits(4.4, true) || fits(4.5, true) {
		t.Error("larger typical payloads fit")
	}
}

// largest is the largest payload of a function URL.
const largest = 6 << 20

// inputs returns authentic payloads of that size that could need much memory or time, and
// the status of their answer.
func inputs(name string) (payload []byte, status int) {
	fill := func(prefix, part, suffix string) []byte {
		return []byte(prefix + strings.Repeat(part, (largest-len(prefix)-len(suffix))/len(part)) + suffix)
	}
	head := `{"deliveryId":"` + uuid.New().String() + `","events":[`
	switch name {
	case "a small payload":
		return []byte("{}"), 422
	case "six million opened":
		return fill("", "[", ""), 422
	case "millions of empty events":
		return fill(head, "{},", "{}]}"), 422
	case "millions of unknown names":
		return fill(head+string(paymenttest.Encode(paymenttest.Event()))+`],"x":[`, `{"a":1},`, "{}]}"), 200
	case "a string of escapes":
		return fill(`{"deliveryId":"`, `\u0041`, `"}`), 422
	default: // as many events as fit
		return paymenttest.Delivery(paymenttest.Events(5000)...), 200
	}
}

// peakEnv makes a test process handle one payload, so that its memory can be measured
// separately.
const peakEnv = "PAYHOOK_TEST_PEAK"

func TestThePeakOfMemoryIsBelowTheLimit(t *testing.T) {
	if name := os.Getenv(peakEnv); name != "" {
		e := newEndpoint(t, nil)
		e.maxPayloadBytes = largest
		payload, want := inputs(name)
		if r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload})); r.StatusCode != want {
			t.Errorf("answered %d, want %d", r.StatusCode, want)
		}
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
	const memory = settings.WebhookMemory
	// The test process also creates and signs the payload and has AWS services in memory.
	base := peak("a small payload")
	for _, name := range []string{"six million opened", "millions of empty events", "millions of unknown names",
		"a string of escapes", "as many events as fit"} {
		got := peak(name)
		t.Logf("%s: %d MiB; a small payload takes %d", name, got, base)
		if got > memory*3/4 {
			t.Errorf("%s takes %d MiB of %d", name, got, memory)
		}
	}
}
