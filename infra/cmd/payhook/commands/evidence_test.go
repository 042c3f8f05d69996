package commands

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

var (
	key       = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
	otherKey  = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(3072) })
	when      = time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)
	authority = sync.OnceValue(func() *paymenttest.CA { return paymenttest.NewCA("CA") })
)

// signed returns a proof of a payload.
func signed(with paymenttest.Key, payload []byte, at time.Time) proof.Proof {
	return signedAs(with, payload, signature.FormatTime(at), with.ID)
}

// signedAs returns a proof with any timestamp and key id.
func signedAs(with paymenttest.Key, payload []byte, timestamp, keyID string) proof.Proof {
	return proof.Proof{Payload: payload, Timestamp: timestamp, KeyID: keyID, LockDays: 2562,
		JWK:       keys.FormatJWK(keyID, &with.Private.PublicKey),
		Signature: must(signature.Sign(with.Private, payload, timestamp, keyID))}.AsAccepted()
}

// certified adds a client certificate.
func certified(r proof.Proof) proof.Proof {
	r.Certificate = proof.NewCertificate(r.Payload,
		[]*x509.Certificate{authority().Client(nil).Leaf, authority().Certificate}, time.Now())
	return r
}

func unsigned(r proof.Proof) proof.Proof {
	return certified(proof.Proof{Payload: r.Payload, LockDays: 2562}.AsAccepted())
}

func encoded(r proof.Proof) []byte { return must(r.Encode()) }

// proofs calls a command below evidence.
func (w *world) proofs(args ...string) (out, stderr string, status int) {
	return w.operate(append([]string{"evidence", "--region", "eu-north-1"}, args...)...)
}

// folder writes files into a folder.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	name := t.TempDir()
	for base, text := range files {
		file := filepath.Join(name, base)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

func TestVerifyCounts(t *testing.T) {
	w := newWorld(t)
	one := signed(key(), paymenttest.Delivery(paymenttest.Events(2)...), when)
	other := certified(signed(otherKey(), paymenttest.Delivery(paymenttest.Event()), when))
	marked := signed(key(), append([]byte("\ufeff"), one.Payload...), when)
	forged := one
	forged.Payload = paymenttest.Delivery(paymenttest.Event())
	certain := unsigned(one)
	far, mtls := other.Name(), certain.Name()
	cut := encoded(one)[:500]
	files := folder(t, map[string][]byte{one.Name(): encoded(one), far: encoded(other), mtls: encoded(certain),
		forged.Name(): encoded(forged), "empty.json": nil, "cut.json": cut, "renamed.json": encoded(one),
		"id.message": []byte("x")})
	intact := folder(t, map[string][]byte{one.Name(): encoded(one), mtls: encoded(certain)})
	// The name of another file is not printed.
	odd := func(text []byte) string {
		return fmt.Sprintf("%s, a file with the SHA-256 %x", files, sha256.Sum256(text))
	}
	damaged := []string{forged.Name(), odd(cut), odd(nil), odd(encoded(one))}
	jwk := append([]byte("\ufeff"), key().JWK()...) // as editors write it
	trusted := "--keys " + folder(t, map[string][]byte{"a": jwk, "b": paymenttest.NewKey(2048).JWK()})
	for name, test := range map[string]struct {
		folder, keys string
		counts       [4]int // verified, damaged, not signed, key unknown
		problems     []string
	}{
		"all":    {files, "", [4]int{2, 4, 1, 0}, damaged},
		"intact": {intact, "", [4]int{1, 0, 1, 0}, nil},
		"a byte order mark": {folder(t, map[string][]byte{marked.Name(): encoded(marked)}), trusted,
			[4]int{1, 0, 0, 0}, nil},
		"with keys": {files, trusted, [4]int{1, 4, 1, 1},
			append([]string{far, mtls}, damaged...)},
		"not signed, with keys": {intact, trusted, [4]int{1, 0, 1, 0}, []string{mtls}},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, status := w.proofs(strings.Fields("verify --json " + test.folder + " " + test.keys)...)
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			var problems []string
			for _, line := range lines[:len(lines)-1] {
				var problem struct{ At, Error string }
				if err := json.Unmarshal([]byte(line), &problem, json.MatchCaseInsensitiveNames(true)); err != nil ||
					problem.Error == "" || strings.Contains(problem.Error, "proof: ") {
					t.Errorf("%v: %s", err, line)
				}
				problems = append(problems, strings.TrimPrefix(problem.At, test.folder+"/"))
			}
			n := test.counts
			want := fmt.Sprintf(`{"verified":%d,"damaged":%d,"notSigned":%d,"keyUnknown":%d,"versions":0}`, n[0], n[1],
				n[2], n[3])
			if lines[len(lines)-1] != want || (status != 0) != (problems != nil) ||
				!slices.Equal(slices.Sorted(slices.Values(problems)), slices.Sorted(slices.Values(test.problems))) {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
		})
	}
	const want = "verified=1  notSigned=1\n"
	if out, _, status := w.proofs("verify", intact); out != want || status != 0 {
		t.Errorf("%d, %s", status, out)
	}
}

func TestWhatCannotBeVerified(t *testing.T) {
	w := newWorld(t)
	files := folder(t, map[string][]byte{"one": encoded(signed(key(), []byte("{}"), when))})
	for message, test := range map[string]struct {
		args   []string
		status int
	}{
		"there is no proof in":   {[]string{t.TempDir()}, cli.StatusFailed},
		"no such file":           {[]string{filepath.Join(files, "missing")}, cli.StatusFailed},
		"there is no file in":    {[]string{files, "--keys", t.TempDir()}, cli.StatusUsage},
		"one: not the requested": {[]string{files, "--keys", files}, cli.StatusUsage},
	} {
		out, stderr, status := w.proofs(append([]string{"verify"}, test.args...)...)
		if status != test.status || !strings.Contains(stderr, message) {
			t.Errorf("%s: %d, %s%s", message, status, out, stderr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.ctx = ctx
	if out, stderr, status := w.proofs("verify", files); status != cli.StatusInterrupted || out != "" {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	ctx, cancel = context.WithCancel(t.Context())
	two := folder(t, map[string][]byte{"a.json": nil, "b.json": nil})
	if err := readFiles(ctx, two, func(Object) { cancel() }); err != context.Canceled {
		t.Errorf("what was read until the end of the context is all: %v", err)
	}
}

func TestAllVersionsOfObjectsAreRead(t *testing.T) {
	b := bucket{}
	var all []proof.Proof
	for range 5 {
		r := signed(key(), paymenttest.Delivery(paymenttest.Event()), when)
		b[r.Name()+"?1"] = encoded(r)
		all = append(all, r)
	}
	at := func(key string, at time.Time) string { return key + "?" + at.UTC().Format(time.RFC3339) }
	const ended = "accepted/2562/2026/01/31/12/x"
	other := signed(key(), paymenttest.Delivery(paymenttest.Event()), when)
	name := all[2].Name()
	for title, test := range map[string]struct {
		further map[string][]byte
		counts  [3]int // verified, damaged, versions
		message string
	}{
		"one each":           {nil, [3]int{5, 0, 0}, ""},
		"a second, the same": {map[string][]byte{name + "?2": encoded(all[2])}, [3]int{6, 0, 1}, "?versionId=1"},
		"a second, damaged":  {map[string][]byte{name + "?2": []byte("x")}, [3]int{5, 1, 1}, "?versionId=2"},
		"a delete marker": {map[string][]byte{at(name, lockEnd.Add(-time.Second)): nil}, [3]int{5, 0, 1},
			"Z\",\"error\":\"it is a delete marker, and the proof is locked"},
		"the end of the retention": {map[string][]byte{at(name, lockEnd): nil}, [3]int{5, 0, 0}, ""},
		"a lock that is not known": {map[string][]byte{at(other.Name(), lockEnd): nil,
			other.Name() + "?unknown": encoded(other)}, [3]int{6, 0, 1}, "s3:GetObjectRetention is missing"},
		"a deleted proof": {map[string][]byte{at(ended, time.Now().Add(-29*24*time.Hour)): nil}, [3]int{5, 0, 1},
			"there is no proof"},
		"an ended proof": {map[string][]byte{at(ended, time.Now().Add(-31*24*time.Hour)): nil}, [3]int{5, 0, 0}, ""},
		"another name":   {map[string][]byte{ended + "?1": encoded(other)}, [3]int{5, 1, 0}, "the name"},
		"the checksum":   {map[string][]byte{other.Name() + "?bad": encoded(other)}, [3]int{5, 1, 0}, "checksum"},
	} {
		t.Run(title, func(t *testing.T) {
			changed := maps.Clone(b)
			maps.Copy(changed, test.further)
			w := served(t, changed)
			counts := fmt.Sprintf(`{"verified":%d,"damaged":%d,"notSigned":0,"keyUnknown":0,"versions":%d}`,
				test.counts[0], test.counts[1], test.counts[2])
			for _, args := range [][]string{{"s3://evidence-1/accepted/2562/2026/01/"}, nil} {
				out, stderr, status := w.proofs(append([]string{"verify", "--json"}, args...)...)
				if (status != 0) != (test.message != "") || !strings.Contains(out, counts) ||
					!strings.Contains(out, test.message) {
					t.Errorf("%q: %d, %s%s", args, status, out, stderr)
				}
			}
		})
	}
	w := served(t, b)
	_, stderr, status := w.proofs("verify", "s3://evidence-1/accepted/2562/2027")
	if status != cli.StatusFailed ||
		!strings.Contains(stderr, "there is no proof in s3://evidence-1/accepted/2562/2027") {
		t.Errorf("%d, %s", status, stderr)
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	if _, stderr, status := w.proofs("verify", "s3://evidence-1"); status != cli.StatusUnreachable {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestTheHoursOfTheEventAreSearched(t *testing.T) {
	r := signed(key(), paymenttest.Delivery(paymenttest.Event()), when)
	ahead := signed(key(), paymenttest.Delivery(paymenttest.Event()), noon.Add(time.Hour)) // by the service's clock
	id := r.EventIDs[0]
	item := func(recorded, event time.Time) func(*world) {
		return func(w *world) {
			w.insert(ledger.Published, ledger.Item{EventID: id, RecordedAt: recorded, EventTimestamp: event})
		}
	}
	day := 24 * time.Hour
	for name, test := range map[string]struct {
		ledger  func(*world)
		args    string
		status  int
		message string
	}{
		"at once":                            {item(when, when), id, 0, ""},
		"in upper case":                      {item(when, when), strings.ToUpper(id), 0, ""},
		"the service sent it late":           {item(when.Add(time.Hour), when.Add(-day)), id, 0, ""},
		"parked and replayed ten days later": {item(when.Add(10*day), when.Add(-time.Minute)), id, 0, ""},
		"recorded long after the event":      {item(when.Add(40*day), when), id, 1, "no proof of"},
		"recorded three hours later":         {item(when.Add(3*time.Hour), when.Add(3*time.Hour)), id, 1, "--from"},
		"expired":                            {nil, id, cli.StatusUsage, "--from and --to"},
		"a range of days":                    {nil, id + " --from 2026-01-30 --to 2026-01-31", 0, ""},
		"a range of hours":                   {nil, id + " --from 2026-01-31T12 --to 2026-01-31T12", 0, ""},
		"the hour before":                    {nil, id + " --from 2026-01-31T10 --to 2026-01-31T11", 1, "no proof"},
		"a clock that is ahead":              {nil, ahead.DeliveryID + " --from 2026-01-31T12", 0, ""},
		"a deliveryId":                       {nil, r.DeliveryID + " --from 2026-01-31 --to 2026-02-01", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(t, bucket{r.Name() + "?1": encoded(r), ahead.Name() + "?1": encoded(ahead)})
			if test.ledger != nil {
				test.ledger(w)
			}
			out, stderr, status := w.proofs(append([]string{"find"}, strings.Fields(test.args)...)...)
			if status != test.status || !strings.Contains(stderr, test.message) ||
				(status == 0) != strings.Contains(out, "verifies") {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
			if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
				t.Errorf("it wrote %v, %v", files, err)
			}
		})
	}
}

// The time of a proof is that of its latest event. What S3 stored later is not read.
func TestTheProofOfAnEventThatIsAheadIsFound(t *testing.T) {
	now, later := paymenttest.Event(), paymenttest.Event()
	now.EventTimestamp, later.EventTimestamp = when.Add(10*time.Hour), when.Add(30*time.Hour)
	r := unsigned(proof.Proof{Payload: paymenttest.Delivery(now, later)})
	other := "accepted/2562/2026/02/01/08/20260201T080000.000Z-unknown-0.json?2026-01-31T13:00:06Z"
	b := bucket{r.Name() + "?1": encoded(r), other: []byte("x"), r.Name() + "?2026-01-31T14:00:00Z": encoded(r),
		strings.Replace(other, "01-31", "02-28", 1): nil, "accepted/2562/2027/01/01/00/x?1": []byte("x"),
		"accepted/2562/2028/01/01/00/x?1": []byte("x")}
	w := served(t, b)
	w.insert(ledger.Published, ledger.Item{EventID: now.EventID, RecordedAt: when, EventTimestamp: now.EventTimestamp})
	lists := 0
	w.fails = func(call string) error {
		if strings.Contains(call, "ListObjectVersions") {
			lists++
		}
		return nil
	}
	out, stderr, status := w.proofs("find", now.EventID)
	if status != 1 || strings.Count(out, "certificate verifies") != 1 ||
		strings.Contains(stderr, other[:40]) || lists != 4 { // of the settings, and of two versions each
		t.Errorf("%d, %d lists, %s%s", status, lists, out, stderr)
	}
}

func TestAllProofsOfAnEventAreFound(t *testing.T) {
	event := paymenttest.Event()
	event.EventTimestamp = when.Add(-time.Second)
	first := signed(key(), paymenttest.Delivery(event), when)
	again := signed(key(), paymenttest.Delivery(event), when.Add(time.Hour))
	changed := event
	changed.EventData.Amount = "0.01"
	conflict := signed(key(), paymenttest.Delivery(changed), when)
	marked := signed(key(), append([]byte("\ufeff"), paymenttest.Delivery(event)...), when)
	incomplete := signed(key(), paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(paymenttest.Event()),
		[]byte(`{"eventId":"`+event.EventID+`"}`)), when)
	unknown := signed(otherKey(), paymenttest.Delivery(event), when)
	forged := unsigned(signed(key(), paymenttest.Delivery(changed), when.Add(-time.Hour)))
	same := unsigned(first)
	damaged := bytes.Replace(encoded(first), []byte(`"timestamp":"2026`), []byte(`"timestamp":"2025`), 1)
	also := func(r proof.Proof) bucket { return bucket{r.Name() + "?1": encoded(r)} }
	const bad = "accepted/2562/2026/01/31/12/a?1"
	one, two, certain := "verifies", "verifies\nverifies", "verifies\nnot signed: the certificate verifies"
	for name, test := range map[string]struct {
		further bucket
		status  int
		results string // one a line
		message string
	}{
		"one":                     {nil, 0, one, ""},
		"sent again":              {also(again), 0, two, ""},
		"after a byte order mark": {also(marked), 0, two, ""},
		"without an eventName":    {also(incomplete), 1, two, "differ in the bytes"},
		"unsigned as well":        {also(same), 0, certain, ""},
		"a conflict":              {also(conflict), 1, two, "differ in the bytes"},
		"another key":             {also(unknown), 1, two, "differ in the key"},
		"a forged one":            {also(forged), 1, certain, "differ in the bytes"},
		"a damaged one":           {bucket{bad: damaged}, 1, one + "\ndoes not verify", ""},
		"a delete marker":         {bucket{first.Name() + "?2": nil}, 1, one, "it is a delete marker"},
		"an ended proof":          {bucket{first.Name() + "?" + lockEnd.Format(time.RFC3339): nil}, 0, one, ""},
		"not a proof":             {bucket{bad: []byte("a\x1b[2J")}, 1, one, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b := also(first)
			maps.Copy(b, test.further)
			w := served(t, b)
			out, stderr, status := w.proofs("find", event.EventID, "--json", "--from", "2026-01-30", "--to",
				"2026-02-01")
			lines, results := strings.Split(strings.TrimSuffix(out, "\n"), "\n"), strings.Split(test.results, "\n")
			if status != test.status || len(lines) != len(results) || !strings.Contains(stderr, test.message) {
				t.Fatalf("%d, %s%s", status, out, stderr)
			}
			for i, want := range results {
				if !strings.Contains(lines[i], want) {
					t.Errorf("%s, want %s", lines[i], want)
				}
			}
		})
	}
}

// The page describes each member of a proof, in the order of the members.
func TestTheMembersOfAProofAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../EVIDENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, written []string
	for _, row := range regexp.MustCompile("(?m)^\\| (?:its )?(`[^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
	}
	text := encoded(certified(signed(key(), paymenttest.Delivery(paymenttest.Event()), when)))
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			break
		}
		kind, length := dec.StackIndex(dec.StackDepth())
		inJWK := strings.HasPrefix(string(dec.StackPointer()), "/jwk/")
		if kind == '{' && length%2 == 1 && !inJWK {
			written = append(written, token.String())
		}
	}
	if !slices.Equal(documented, written) {
		t.Errorf("documented %q, written %q", documented, written)
	}
}

// The printed commands verify the proof with OpenSSL, and evidence verify the folder.
func TestOpenSSLVerifiesTheFoundProof(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: the commands that payhook evidence find prints were not tried")
	}
	large := paymenttest.RawDelivery("0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", paymenttest.Encode(paymenttest.Event()),
		bytes.Repeat([]byte(" "), 5<<20))
	upper := paymenttest.Event()
	upper.EventID = strings.ToUpper(upper.EventID)
	one := paymenttest.Delivery(paymenttest.Event())
	for name, r := range map[string]proof.Proof{
		"a comma":    signedAs(key(), one, "2026-01-31T12:00:00,005Z", key().ID),
		"HTTP":       signedAs(key(), one, "Sat, 31 Jan 2026 12:00:00 GMT", key().ID),
		"a key id":   signedAs(key(), one, "1769860800", strings.ToUpper(strings.ReplaceAll(key().ID, "-", ""))),
		"not a time": signedAs(key(), one, `";$(touch pwned)'\`, key().ID),
		"upper case": signed(key(), paymenttest.Delivery(upper), when),
		"2048 bits":  signed(key(), paymenttest.Delivery(paymenttest.Events(3)...), when),
		"3072 bits":  signed(otherKey(), paymenttest.Delivery(paymenttest.Event()), when),
		"large":      signed(key(), large, when),
		"both":       certified(signed(key(), paymenttest.Delivery(paymenttest.Event()), when)),
		"mtls":       unsigned(signed(key(), paymenttest.Delivery(paymenttest.Event()), when)),
		"4096 bits":  signed(paymenttest.NewKey(4096), paymenttest.Delivery(paymenttest.Event()), when),
	} {
		t.Run(name, func(t *testing.T) {
			w := served(t, bucket{r.Name() + "?1": encoded(r)})
			id := strings.ToLower(r.EventIDs[len(r.EventIDs)-1])
			name, err := proof.ParseName(r.Name())
			if err != nil {
				t.Fatal(err)
			}
			at := name.At.Format(time.DateOnly)
			// A folder of any name.
			const out = "it's $(touch pwned) é"
			text, stderr, status := w.proofs("find", id, "--from", at, "--to", at, "--out", out)
			if status != 0 || !strings.Contains(stderr, out+" has the first proof, with payment data") ||
				strings.Contains(stderr, "/accepted/") {
				t.Fatalf("%d, %s%s", status, text, stderr)
			}
			want := []string{r.Name()}
			result := ""
			if r.HasSignature() {
				want, result = append(want, id+".key.pem", id+".message", id+".signature"), "Verified OK\n"
			}
			if r.Certificate != nil {
				want, result = append(want, id+".chain.pem"), result+filepath.Join(out, id+".chain.pem")+": OK\n"
			}
			if got := filesIn(t, out); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%q, want %q", got, want)
			}
			if got, err := os.ReadFile(filepath.Join(out, r.Name())); err != nil || !bytes.Equal(got, encoded(r)) {
				t.Error(err)
			}
			if text, stderr, status := w.proofs("verify", out); status != 0 {
				t.Errorf("%d, %s%s", status, text, stderr)
			}
			_, commands, _ := strings.Cut(stderr, "OpenSSL:\n")
			here, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			shell := func() (string, error) { // in any folder
				c := exec.Command("sh", "-e", "-c", commands)
				c.Dir = t.TempDir()
				got, err := c.CombinedOutput()
				return strings.ReplaceAll(string(got), here+"/", ""), err
			}
			if got, err := shell(); err != nil || got != result {
				t.Fatalf("%v: %s", err, got)
			}
			if got := filesIn(t, "."); slices.Contains(got, "pwned") {
				t.Errorf("%q", got)
			}
			if !r.HasSignature() {
				return
			}
			file := filepath.Join(out, id+".message")
			message, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			message[20] ^= 2
			if err := os.WriteFile(file, message, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := shell(); err == nil || strings.Contains(got, "Verified OK") {
				t.Errorf("a changed payload: %v, %s", err, got)
			}
		})
	}
}

// Whoever can write into the bucket chooses names and texts.
func TestNoTextOfAProofIsRunOrPrinted(t *testing.T) {
	event := paymenttest.Event()
	event.EventTimestamp = when
	id := event.EventID
	payload := paymenttest.Delivery(event)
	good := signed(key(), payload, when)
	const evil = "x;touch pwned;$(touch pwned)\x1b[2J\u202e"
	b, all := bucket{}, []proof.Proof{}
	member := func(change func(p *proof.Proof)) {
		p := good
		change(&p)
		all = append(all, p)
	}
	member(func(p *proof.Proof) { p.Request = &proof.RejectedRequest{Outcome: evil, ReceivedAt: when} })
	member(func(p *proof.Proof) { p.Cause = evil })
	member(func(p *proof.Proof) { p.DeliveryID = evil })
	member(func(p *proof.Proof) { p.EventIDs = append(p.EventIDs, evil) })
	member(func(p *proof.Proof) { p.Timestamp = evil })
	member(func(p *proof.Proof) { p.KeyID = evil })
	member(func(p *proof.Proof) { p.Signature = evil })
	member(func(p *proof.Proof) { *p = signedAs(key(), payload, p.Timestamp, "$(touch pwned)") })
	member(func(p *proof.Proof) { // a name of a CA is in the error of Go
		ca, same := paymenttest.NewCA(evil), paymenttest.NewCA(evil)
		p.Certificate = proof.NewCertificate(payload, []*x509.Certificate{ca.Client(nil).Leaf, same.Certificate},
			time.Now())
	})
	member(func(p *proof.Proof) {
		p.Certificate = proof.NewCertificate(payload, []*x509.Certificate{authority().Certificate}, when)
		p.Certificate.Chain[0] = "-----BEGIN " + evil + "-----"
	})
	for i, p := range all {
		b[fmt.Sprintf("%s%032x.json?1", good.Name()[:len(good.Name())-len(".json")-32], i)] = encoded(p)
	}
	for i, odd := range []string{evil, "../" + evil, "a/../../" + evil, strings.Repeat("n", 900) + evil, "\xff" + evil,
		"é" + evil + ".json", "accepted/" + evil, good.Name() + evil, good.Name() + "\n" + evil} {
		b["accepted/2562/2026/01/31/12/"+odd+"?1"] = encoded(all[i])
		b["accepted/"+odd+"?1"] = encoded(good)
		b[odd+"?1"] = nil
	}
	// Without the proofs above, one verifies whose texts were chosen as well.
	chosen := signedAs(key(), payload, "x;touch pwned;$(touch pwned)\u00e9", key().ID)
	one := bucket{chosen.Name() + "?1": encoded(chosen)}
	others := folder(t, map[string][]byte{"a": otherKey().JWK()})
	for name, test := range map[string]struct {
		b      bucket
		args   string
		status int
		files  int
	}{
		"verify":                {b, "verify", 1, 0},
		"verify a prefix":       {b, "verify s3://evidence-1/accepted/", 1, 0},
		"verify, in JSON":       {b, "verify --json", 1, 0},
		"find":                  {b, "find " + id + " --from 2026-01-31 --to 2026-01-31", 1, 0},
		"find, in JSON":         {b, "find " + id + " --json --from 2026-01-31 --to 2026-01-31", 1, 0},
		"find in the ledger":    {b, "find " + id + " --json", 1, 0},
		"none that verifies":    {b, "find " + id + " --from 2026-01-31 --to 2026-01-31 --out case", 1, 0},
		"one of chosen texts":   {one, "find " + id + " --from 1970-01-01 --out case", 0, 4},
		"in JSON":               {one, "find " + id + " --json --from 1970-01-01", 0, 0},
		"verify chosen texts":   {one, "verify --json", 0, 0},
		"another key than ours": {one, "verify --keys " + others, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(t, test.b)
			w.insert(ledger.Published, ledger.Item{EventID: id, RecordedAt: when, EventTimestamp: when})
			out, stderr, status := w.proofs(strings.Fields(test.args)...)
			if status != test.status || strings.Contains(out+stderr, "touch") ||
				strings.Contains(out+stderr, "pwned") ||
				strings.ContainsFunc(strings.ReplaceAll(out+stderr, "\n", ""),
					func(r rune) bool { return r > '~' || r < ' ' }) {
				t.Errorf("%d, %q", status, out+stderr)
			}
			if _, commands, ok := strings.Cut(stderr, "OpenSSL:\n"); ok {
				if got, err := exec.Command("sh", "-c", commands).CombinedOutput(); err != nil {
					t.Errorf("%v, %s", err, got)
				}
			}
			if got := filesIn(t, "."); len(got) != test.files || slices.Contains(got, "pwned") {
				t.Errorf("%q", got)
			}
		})
	}
	// As files, with links and what is no file.
	files := map[string][]byte{good.Name(): encoded(good)}
	for name, text := range b {
		name, _, _ = strings.Cut(name, "?")
		if len(path.Base(name)) < 250 && filepath.IsLocal(name) && text != nil {
			files[strings.TrimSuffix(name, ".json")+".json"] = text
		}
	}
	copies := folder(t, files)
	if err := errors.Join(os.Symlink("/etc/hostname", filepath.Join(copies, evil+"link.json")),
		os.Symlink("/dev/zero", filepath.Join(copies, "zero.json")), os.Symlink("..", filepath.Join(copies, "up.json")),
		os.Symlink(filepath.Join(copies, good.Name()), filepath.Join(copies, "good.json")),
		syscall.Mkfifo(filepath.Join(copies, "pipe.json"), 0o600)); err != nil {
		t.Fatal(err)
	}
	names := filesIn(t, copies)
	want := fmt.Sprintf(`"verified":1,"damaged":%d,`, len(names)-1)
	out, stderr, status := newWorld(t).proofs("verify", "--json", copies)
	if status != 1 || !strings.Contains(out, want) || strings.Contains(out+stderr, "touch") || len(names) < 20 {
		t.Errorf("%d files, %d, %s%s, want %s", len(names), status, out, stderr, want)
	}
}

func TestAFolderIsVerifiedAsTheBucketIs(t *testing.T) {
	w := newWorld(t)
	r := signed(key(), paymenttest.Delivery(paymenttest.Event()), when)
	other := r
	other.LockDays = 30
	parked := r
	parked.Reason, parked.LockDays, parked.StoredAt, parked.Cause = proof.Invalid, 0, when, "why"
	text := encoded(r)
	for name, test := range map[string]struct {
		name, verify string
		text         []byte
		status       int
	}{
		"as in the bucket":    {r.Name(), "", text, 0},
		"of another lock":     {other.Name(), "", text, 0},
		"a folder of it":      {r.Name(), "accepted/2562/2026", text, 0},
		"the folder of one":   {r.Name(), path.Dir(r.Name()), text, 0},
		"below another":       {"copies/" + r.Name(), "", text, 1},
		"of another, from it": {"copies/" + r.Name(), "copies", text, 0},
		"without its path":    {path.Base(r.Name()), "", text, 1},
		"another hour":        {strings.Replace(r.Name(), "/12/", "/13/", 1), "", text, 1},
		"another reason":      {strings.Replace(r.Name(), "accepted/2562", "invalid", 1), "", text, 1},
		"no lock":             {strings.Replace(r.Name(), "/2562", "", 1), "", text, 1},
		"parked":              {parked.Name(), "", encoded(parked), 0},
		"parked as accepted":  {r.Name(), "", encoded(parked), 1},
	} {
		t.Run(name, func(t *testing.T) {
			at := folder(t, map[string][]byte{test.name: test.text})
			out, stderr, status := w.proofs("verify", filepath.Join(at, test.verify))
			if status != test.status {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
		})
	}
	at := folder(t, map[string][]byte{r.Name(): text})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(at, link); err != nil {
		t.Fatal(err)
	}
	if out, stderr, status := w.proofs("verify", link); status != 0 {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

// What was in the folder could be taken for a part of the proof.
func TestAProofIsWrittenOnlyIntoANewOrEmptyFolder(t *testing.T) {
	r := signed(key(), paymenttest.Delivery(paymenttest.Event()), when)
	w := served(t, bucket{r.Name() + "?1": encoded(r)})
	used, empty := folder(t, map[string][]byte{"a": nil}), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(used, link); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]int{used: cli.StatusUsage, link: cli.StatusUsage,
		filepath.Join(used, "a"): cli.StatusUsage, filepath.Join(used, "a", "b"): cli.StatusUsage, empty: 0,
		filepath.Join(t.TempDir(), "a", "b"): 0,
		"/proc/new":                          cli.StatusFailed} {
		text, stderr, status := w.proofs("find", r.DeliveryID, "--from", "2026-01-31", "--out", out)
		if status != want || strings.Contains(text, "verifies") != (want != cli.StatusUsage) ||
			strings.Contains(stderr, "openssl") != (want == 0) {
			t.Errorf("%s: %d, %s%s", out, status, text, stderr)
		}
	}
	if got := filesIn(t, used); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}

// A shorter or longer setting gives the next proofs another folder.
func TestTheProofsOfEverySettingAreFound(t *testing.T) {
	event := paymenttest.Event()
	event.EventTimestamp = when
	b := bucket{}
	for i, days := range []int{1, 30, 2562, 25620, 36500} {
		r := signed(key(), paymenttest.Delivery(event), when.Add(time.Duration(i)*time.Minute))
		r.LockDays = days
		b[r.Name()+"?1"] = encoded(r)
		if days == 30 {
			b[r.Name()+"?"+lockEnd.Add(-time.Second).Format(time.RFC3339)] = nil // which hides a folder
		}
	}
	w := served(t, b)
	out, stderr, status := w.proofs("find", event.EventID, "--from", "2026-01-31", "--to", "2026-01-31")
	if status != 1 || strings.Count(out, "verifies") != 5 || strings.Count(stderr, "delete marker") != 1 {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	out, _, _ = w.proofs("verify")
	if !strings.Contains(out, "verified=5  versions=1\n") {
		t.Error(out)
	}
}

// The script of the runbook, entries.py, puts the bytes of the events that were published meanwhile on the bus.
func TestEventsForABusThatWasGoneAreUnchanged(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed: the script of the runbook was not tried")
	}
	script, err := os.ReadFile("../../../entries.py")
	if err != nil {
		t.Fatal(err)
	}
	event := func(more string) (id string, raw []byte) {
		e := paymenttest.Event()
		raw = paymenttest.Encode(e)
		return e.EventID, append(raw[:len(raw)-1:len(raw)-1], more+"}"...)
	}
	files, published, want := map[string][]byte{}, []string{""}, map[string]string{}
	deliver := func(before string, raw ...[]byte) {
		r := signed(key(), append([]byte(before), paymenttest.RawDelivery(uuid.New().String(), raw...)...), when)
		files["proofs/"+r.Name()] = encoded(r)
	}
	gone := func(more string) []byte {
		id, raw := event(more)
		published, want[id] = append(published, id), string(raw)
		return raw
	}
	other := func() []byte { _, raw := event(""); return raw }
	deliver("", gone(`,"amount":1234567890.10,"e":1E+2,"z":-0.0, "t":"\u00e9é\/ ]},[{" ,"a":[ ],"o":{}`), other(),
		gone(`,"n":`+strings.Repeat("9", 5000)), []byte("7"), []byte("[]"), []byte(`{"eventId":[1]}`), []byte(" null "))
	deliver("\ufeff \r\n", gone(" \t, \n\"x\" : 1.00"))
	again := gone(`,"b":"😀"`)
	deliver("", again)
	deliver("", other(), again)
	for range 12 {
		deliver("", gone(`,"x":"`+strings.Repeat("x", 40000)+`"`), gone(""))
	}
	twice, first := event(`,"x":1.0`)
	large, long := event(`,"x":"` + strings.Repeat("é", 100_000) + `"`)
	missing := uuid.New().String()
	deliver("", first, long)
	deliver("", bytes.Replace(first, []byte("1.0"), []byte("1.00"), 1))
	published[0] = strings.ToUpper(published[1])
	files["ids"] = []byte(strings.Join(append(published, twice, large, missing), "\n") + "\n")
	at := folder(t, files)
	c := exec.Command("python3", "-", "payments")
	c.Dir, c.Stdin = at, bytes.NewReader(script)
	text, err := c.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	problems := []string{missing + " has 0 contents in the proofs", twice + " has 2 contents in the proofs",
		large + " is large"}
	if slices.Sort(problems); err != nil || !slices.Equal(lines, problems) {
		t.Fatalf("%v, %s", err, text)
	}
	batches, err := filepath.Glob(filepath.Join(at, "entries-*.json"))
	if err != nil || len(batches) < 3 {
		t.Errorf("%q, %v", batches, err)
	}
	for _, batch := range batches {
		text, err := os.ReadFile(batch)
		if err != nil {
			t.Fatal(err)
		}
		var entries []struct {
			EventBusName, Source, DetailType, Detail string
			Resources                                []string
		}
		if err := json.Unmarshal(text, &entries); err != nil || len(entries) > 10 || len(text) > 250_000 {
			t.Errorf("%d entries in %d bytes, %v", len(entries), len(text), err)
		}
		for _, e := range entries {
			raw, err := payment.DecodeRawEvent([]byte(e.Detail))
			if err != nil || want[raw.EventID] != e.Detail || e.EventBusName != "payments" || e.Source != "payhook" ||
				e.DetailType != raw.EventName || len(e.Resources) != 1 || !payment.IsUUID(e.Resources[0]) {
				t.Errorf("%+v, want %s, %v", e, want[raw.EventID], err)
			}
			delete(want, raw.EventID)
		}
	}
	if len(want) > 0 {
		t.Errorf("not put on the bus: %v", want)
	}
}

// filesIn returns the files in a folder and below.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
