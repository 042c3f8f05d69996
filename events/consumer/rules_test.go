package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// patterns is the folder with the patterns.
var patterns = filepath.Join("..", "rules")

var update = flag.Bool("update", false, "write testdata/events.jsonl")

// sample is an event that the patterns are tested with.
type sample struct {
	name  string
	event payment.Event
	raw   []byte // as signed
	claim bool   // the bus carries a reference to it
}

// detail returns the detail of the event on the bus.
func (s sample) detail(t *testing.T) []byte {
	t.Helper()
	if !s.claim {
		return s.raw
	}
	event, err := payment.DecodeRawEvent(s.raw)
	if err != nil {
		t.Fatal(err)
	}
	bucket := awstest.NewS3()
	bucket.MakeBucket("claims")
	detail, err := claimcheck.NewStore(bucket, "claims").Put(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// amounts are on both sides of the thresholds in the patterns, and on both sides of
// the limits of numeric matching in all versions of the rule engine.
var amounts = strings.Fields(`0 -0 0.01 -5 999.99 999.999999 999.9999999 1000 1000.00 1E3 1000.000000000000000001
	99999.9999999e1 999999.99 999999.999999 999999.9999999 999999.99999999999999999
	1000000 1000000.00 1E6 0.1e7 100000000e-2 1000000.0000001 1000000.00000000000000001
	1234567890.10 4999999999.99 5000000000 5000000000.01 6000000000 499999999999.99 500000000000.01
	1234567890123.45 12345678901234567.89 9007199254740993 9223372036854775807 123456789012345678901234.5
	1e15 1e300 1e400 -6000000000`)

// samples returns the events. The same code returns the same bytes.
func samples(t *testing.T) []sample {
	t.Helper()
	var all []sample
	made := func(name string, change func(*payment.Event), edits ...string) *sample {
		e := paymenttest.Event()
		at := time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)
		e.EventID, e.EventTimestamp = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60", at
		e.EventData.Identifiers = payment.Identifiers{PaymentRequestID: "PR-1", PaymentEndToEndID: "E2E-1",
			SvcUniquePaymentID: "SVC-1", RailReferenceID: jsontext.Value(`{}`), SvcPostingIDs: []string{"P-1"}}
		e.EventData.PaymentExecutedValueDate, e.EventData.PaymentStatus.StatusTime = "2026-01-31", at
		change(&e)
		text := string(paymenttest.Encode(e))
		for i := 0; i < len(edits); i += 2 {
			if edits[i] == "" { // all of the data
				edits[i] = text[strings.Index(text, `"eventData"`) : len(text)-1]
			}
			if strings.Count(text, edits[i]) != 1 {
				t.Fatalf("%s: %s is not once in %s", name, edits[i], text)
			}
			text = strings.Replace(text, edits[i], edits[i+1], 1)
		}
		decoded, err := payment.DecodeEvent([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, sample{name: name, event: decoded, raw: []byte(text)})
		return &all[len(all)-1]
	}
	same := func(*payment.Event) {}
	for _, amount := range amounts {
		set := func(e *payment.Event) { e.EventData.Amount = payment.Amount(amount) }
		made("amount "+amount, set)
		made("claim check, amount "+amount, set).claim = true
	}
	// EventBridge rejects an integer outside 64 bits, so only a claim check has it, without the amount.
	made("claim check, amount 9223372036854775808", func(e *payment.Event) {
		e.EventData.Amount = "9223372036854775808"
	}).claim = true
	made("claim check, amount of 200 digits", func(e *payment.Event) {
		e.EventData.Amount = payment.Amount("1." + strings.Repeat("0", 200))
	}).claim = true
	made("no amount", same, `"amount":1250.00,`, ``)
	made("claim check, no amount", same, `"amount":1250.00,`, ``).claim = true
	for _, claim := range []bool{false, true} {
		prefix := ""
		if claim {
			prefix = "claim check, "
		}
		add := func(name string, change func(*payment.Event), edits ...string) {
			made(prefix+name, change, edits...).claim = claim
		}
		add("EUR", func(e *payment.Event) { e.EventData.PaymentCurrency = "EUR" })
		add("EUR with an escape", same, `"USD"`, `"\u0045UR"`)
		add("eur", func(e *payment.Event) { e.EventData.PaymentCurrency = "eur" })
		add("no currency", same, `"paymentCurrency":"USD",`, ``)
		add("EUR in another field", same, `"USD"`, `"USD","settlementCurrency":"EUR"`)
		add("a return", func(e *payment.Event) { e.EventData.Returns.HasReturnDetails = true })
		add("a cancelation", func(e *payment.Event) { e.EventData.Cancelations.HasCancelationDetails = true })
		add("a case", func(e *payment.Event) { e.EventData.Cases.HasLinkedCases = true })
		add("all flags", func(e *payment.Event) {
			e.EventData.Returns.HasReturnDetails, e.EventData.Cancelations.HasCancelationDetails = true, true
			e.EventData.Cases.HasLinkedCases = true
		})
		add("no flags", same, `,"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":false},`+
			`"cases":{"hasLinkedCases":false}`, ``)
		add("another status", func(e *payment.Event) {
			e.EventName, e.EventData.PaymentStatus.Status = "PAYMENT_STATUS.REJECTED", "REJECTED"
		})
		add("another status in the name only", func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.REJECTED" })
		add("another status in the data only", func(e *payment.Event) {
			e.EventData.PaymentStatus.Status = "REJECTED"
		})
		add("another group", func(e *payment.Event) { e.EventName = "RETURN_STATUS.RELEASED" })
		add("a group with the same beginning", func(e *payment.Event) { e.EventName = "PAYMENT_STATUS_2.RELEASED" })
		add("the group in lower case", func(e *payment.Event) { e.EventName = "payment_status.RELEASED" })
		add("three parts", func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.RELEASED.LATE" })
		add("no data", same, "", `"x":1`)
	}
	made("claimCheck below the top", same, `"USD"`, `"USD","claimCheck":{"key":"x"}`)
	return all
}

// eventsFile returns the content of testdata/events.jsonl: one event of EventBridge a
// line, with its name as the id.
func eventsFile(t *testing.T, all []sample) []byte {
	t.Helper()
	var text bytes.Buffer
	for _, s := range all {
		fmt.Fprintf(&text, `{"version":"0","id":%q,"detail-type":%q,"source":"payhook","account":"111122223333",`+
			`"time":"2026-01-31T12:00:00Z","region":"us-east-1","resources":["0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"],`+
			`"detail":%s}`+"\n", s.name, s.event.EventName, s.detail(t))
	}
	return text.Bytes()
}

// patternFiles returns the files with the patterns, in the order of testdata/ruler/record.
func patternFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(patterns, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return append(files, filepath.Join(patterns, "testdata", "numeric-only.json"))
}

func nameOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".json") }

func TestTheRecordedEventsAreThoseOfTheCode(t *testing.T) {
	file, want := filepath.Join(patterns, "testdata", "events.jsonl"), eventsFile(t, samples(t))
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): run make rule-results", file, err)
	}
}

// versions are those of the rule engine, from the oldest to the newest.
var versions = []string{"1.2.2", "1.7.3", "1.8.1", "2.1.0"}

// recorded returns what testdata/ruler/record has recorded for a version: the names of the
// events that match, by the name of the pattern.
func recorded(t *testing.T, version string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(patterns, "testdata", version+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	for _, file := range append([]string{filepath.Join(patterns, "testdata", "events.jsonl")}, patternFiles(t)...) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		digest.Write(content)
	}
	header, lines, _ := strings.Cut(string(text), "\n")
	if want := "# " + hex.EncodeToString(digest.Sum(nil)); header != want {
		t.Fatalf("%s: events or patterns have changed since it was recorded: run make rule-results", version)
	}
	matched, pattern := map[string][]string{}, ""
	for line := range strings.Lines(lines) {
		line = strings.TrimRight(line, "\n")
		if event, ok := strings.CutPrefix(line, "  "); ok {
			matched[pattern] = append(matched[pattern], event)
			continue
		}
		pattern = strings.TrimSuffix(line, ":")
		matched[pattern] = nil
	}
	return matched
}

var million = big.NewRat(1_000_000, 1)

// meaning is what each pattern is for, decided on the decoded event.
var meaning = map[string]func(sample) bool{
	"all":             func(sample) bool { return true },
	"released":        func(s sample) bool { return s.event.EventName == "PAYMENT_STATUS.RELEASED" },
	"payment-status":  func(s sample) bool { return strings.HasPrefix(s.event.EventName, "PAYMENT_STATUS.") },
	"released-status": func(s sample) bool { return s.event.EventData.PaymentStatus.Status == "RELEASED" },
	"euro":            func(s sample) bool { return s.event.EventData.PaymentCurrency == "EUR" },
	"needs-attention": func(s sample) bool {
		d := s.event.EventData
		return d.Returns.HasReturnDetails || d.Cancelations.HasCancelationDetails || d.Cases.HasLinkedCases
	},
	"claim-check": func(s sample) bool { return s.claim },
	// The amount decides. Too many events match, see TestHighValueMatchesEveryHighAmount.
	"high-value":   func(s sample) bool { return s.event.EventData.Amount != "" || s.claim },
	"amount-range": func(s sample) bool { return atLeast(s, big.NewRat(1000, 1)) && !atLeast(s, million) },
	"numeric-only": func(s sample) bool { return atLeast(s, million) },
}

// numeric are the patterns with numeric matching.
var numeric = []string{"amount-range", "numeric-only"}

func atLeast(s sample, threshold *big.Rat) bool {
	value, ok := s.event.EventData.Amount.Rat()
	return ok && value.Cmp(threshold) >= 0
}

// In every version of the rule engine, a pattern without numeric matching matches what
// it is for, and nothing else.
func TestPatternsMatchWhatTheyAreFor(t *testing.T) {
	all := samples(t)
	for _, version := range versions {
		matched := recorded(t, version)
		for pattern := range matched {
			means := meaning[pattern]
			if means == nil {
				t.Errorf("the pattern %s has no meaning", pattern)
			}
			if means == nil || slices.Contains(numeric, pattern) {
				continue
			}
			for _, s := range all {
				if got, want := slices.Contains(matched[pattern], s.name), means(s); got != want {
					t.Errorf("event-ruler %s, %s: %s matches: %t, want %t", version, pattern, s.name, got, want)
				}
			}
		}
	}
}

// A high amount must not be missed by any version of the rule engine, however it is
// written and whether or not the event is a claim check.
func TestHighValueMatchesEveryHighAmount(t *testing.T) {
	for _, version := range versions {
		matched, high := recorded(t, version), 0
		for _, s := range samples(t) {
			value, ok := s.event.EventData.Amount.Rat()
			if s.event.EventData.Amount == "" || ok && value.Cmp(million) < 0 {
				continue
			}
			high++
			if !slices.Contains(matched["high-value"], s.name) {
				t.Errorf("event-ruler %s: %s does not match", version, s.name)
			}
		}
		if high < 40 {
			t.Errorf("only %d events with a high amount", high)
		}
	}
}

var digits = regexp.MustCompile(`^-?([0-9]+)\.?([0-9]*)`)

// inLimits reports whether an amount is within the limits that AWS documents for numeric
// matching: from -5.0e9 to +5.0e9, 15 digits, 6 of them after the decimal point.
func inLimits(a payment.Amount) bool {
	value, ok := a.Rat()
	if !ok || new(big.Rat).Abs(value).Cmp(big.NewRat(5_000_000_000, 1)) > 0 {
		return false
	}
	found := digits.FindStringSubmatch(string(a))
	millionths := new(big.Rat).Mul(value, million)
	return len(found[1]+found[2]) <= 15 && millionths.IsInt()
}

// Within the documented limits, numeric matching is exact in every version.
func TestNumericMatchingIsExactWithinItsLimits(t *testing.T) {
	for _, version := range versions {
		matched := recorded(t, version)
		for _, s := range samples(t) {
			if s.claim && strings.HasSuffix(s.name, "digits") || strings.HasSuffix(s.name, "9223372036854775808") {
				continue // the reference does not contain the amount
			}
			for _, pattern := range numeric {
				got, want := slices.Contains(matched[pattern], s.name), meaning[pattern](s)
				if inLimits(s.event.EventData.Amount) && got != want {
					t.Errorf("event-ruler %s, %s: %s matches: %t, want %t", version, pattern, s.name, got, want)
				}
			}
		}
	}
}

// The table in README.md has a row for every pattern.
func TestTheDocumentDescribesEveryPattern(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(patterns, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range patternFiles(t) {
		if !strings.Contains(string(text), "| [`"+nameOf(file)+".json`]("+filepath.Base(file)+") |") &&
			!strings.Contains(string(text), "(testdata/"+filepath.Base(file)+")") {
			t.Errorf("README.md does not describe %s", file)
		}
	}
}
