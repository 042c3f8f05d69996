package evidence

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

var (
	key       = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
	largeKey  = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(3072) })
	accepted  = time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)
	authority = sync.OnceValue(func() *paymenttest.CA { return paymenttest.NewCA("CA") })
)

// signed returns a record of a payload.
func signed(t testing.TB, with paymenttest.Key, payload []byte) records.Record {
	t.Helper()
	r := records.Record{AcceptedAt: accepted, FunctionVersion: "1", Payload: payload}
	r.DeliveryID, r.EventIDs = payment.PeekIDs(payload, math.MaxInt)
	r.Timestamp, r.KeyID = signature.FormatAuto.Text(accepted), with.ID
	r.JWK = keys.FormatJWK(with.ID, &with.Private.PublicKey)
	var err error
	if r.Signature, err = signature.Sign(with.Private, payload, r.Timestamp, r.KeyID); err != nil {
		t.Fatal(err)
	}
	return r
}

// certified adds a client certificate.
func certified(r records.Record) records.Record {
	r.AcceptedAt = time.Now().UTC().Truncate(time.Millisecond)
	r.Certificate = records.NewCertificate(r.Payload,
		[]*x509.Certificate{authority().Client(nil).Leaf, authority().Certificate}, r.AcceptedAt)
	return r
}

func unsigned(r records.Record) records.Record {
	r = certified(r)
	r.Timestamp, r.KeyID, r.Signature, r.JWK = "", "", "", nil
	return r
}

func lines(t testing.TB, all ...records.Record) []byte {
	t.Helper()
	var text []byte
	for _, r := range all {
		own, err := r.Lines()
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, bytes.Join(own, nil)...)
	}
	return text
}

func compressed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// run runs the command below evidence.
func run(ctx context.Context, args ...string) (out, stderr string, status int) {
	var o, e bytes.Buffer
	p := &cli.Program{Out: &o, Err: &e, Now: time.Now}
	target := &deployment.Target{}
	root := p.Root("test")
	cli.TargetFlags(root, target)
	root.AddCommand(Command(p, target))
	status = p.Run(ctx, root, append([]string{"evidence"}, args...))
	return o.String(), e.String(), status
}

// write writes a file named f in a folder of its own, and returns its path.
func write(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// verified verifies a file, and returns the lines of JSON before the summary, and the summary.
func verified(t *testing.T, text []byte) (summary map[string]int, problems []string, status int) {
	t.Helper()
	out, stderr, status := run(t.Context(), "verify", write(t, text), "--json")
	all := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &summary); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	return summary, all[:len(all)-1], status
}

func TestVerifyCounts(t *testing.T) {
	one := signed(t, key(), paymenttest.Delivery(paymenttest.Events(2)...))
	two := certified(signed(t, largeKey(), paymenttest.Delivery(paymenttest.Event())))
	later := one
	later.AcceptedAt = later.AcceptedAt.Add(time.Hour)
	forged := one
	forged.EventIDs = forged.EventIDs[1:]
	large := signed(t, key(), paymenttest.RawDelivery("0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", paymenttest.Encode(
		paymenttest.Event()), bytes.Repeat([]byte(" "), 2<<20)))
	parts, err := large.Lines()
	if err != nil || len(parts) < 3 {
		t.Fatal(len(parts), err)
	}
	both := lines(t, one, two)
	type numbers = map[string]int
	for name, test := range map[string]struct {
		text    []byte
		numbers numbers
		problem string // a part of it
	}{
		"plain":        {both, numbers{"verified": 2}, ""},
		"gzip":         {compressed(both), numbers{"verified": 2}, ""},
		"no line feed": {both[:len(both)-1], numbers{"verified": 2}, ""},
		"two members": {slices.Concat(compressed(lines(t, one)), compressed(lines(t, two))),
			numbers{"verified": 2}, ""},
		"a line again": {slices.Concat(both, lines(t, one)),
			numbers{"verified": 3, "duplicates": 1}, ""},
		"a delivery again": {slices.Concat(both, lines(t, later)),
			numbers{"verified": 3, "duplicates": 1}, ""},
		"mtls alone": {lines(t, one, unsigned(one)),
			numbers{"verified": 2, "duplicates": 1, "notSigned": 1}, ""},
		"parts": {slices.Concat(slices.Concat(parts...), lines(t, large)),
			numbers{"verified": 1}, ""},
		"a missing part": {slices.Concat(both, parts[0], slices.Concat(parts[2:]...)),
			numbers{"verified": 2, "failed": 1},
			`f:3","error":"parts of the record are missing`},
		"other ids": {slices.Concat(lines(t, forged), both),
			numbers{"verified": 2, "failed": 1},
			`f:1","error":"evidence: what is stored is not what was accepted: the ids`},
		"an empty line": {slices.Concat(both, []byte("\n")),
			numbers{"verified": 2, "failed": 1},
			`f:3","error":"evidence: damaged: the line is too short`},
		"nothing":            {nil, numbers{}, ""},
		"an empty gzip file": {compressed(nil), numbers{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems, status := verified(t, test.text)
			maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
			want := 0
			if test.problem != "" || len(test.numbers) == 0 {
				want = cli.StatusFailed
			}
			if all := strings.Join(problems, ""); !maps.Equal(got, test.numbers) || status != want ||
				len(problems) != test.numbers["failed"] || !strings.Contains(all, test.problem) {
				t.Errorf("%d, %v %v", status, got, problems)
			}
		})
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	text := lines(t, certified(signed(t, key(), paymenttest.Delivery(paymenttest.Event()))))
	for at := range text {
		var changed []byte // eight lines
		for bit := range 8 {
			changed = append(changed, text...)
			changed[len(changed)-len(text)+at] ^= 1 << bit
			if at == len(text)-1 {
				changed = append(changed, '\n')
			}
		}
		if got, problems, status := verified(t, changed); status != cli.StatusFailed || got["verified"] > 0 ||
			len(problems) < 8 {
			t.Fatalf("byte %d: %d, %v, %s", at, status, got, problems)
		}
	}
}

// Some bits of gzip are no content: a time in the header, and what fills up the last byte.
func TestDamagedGzipIsFound(t *testing.T) {
	plain := lines(t, signed(t, key(), paymenttest.Delivery(paymenttest.Event())))
	text := compressed(plain)
	for at := range text {
		changed := slices.Clone(text)
		changed[at] ^= 1 << (at % 8)
		var content []byte
		r, err := gzip.NewReader(bytes.NewReader(changed))
		if err == nil {
			content, err = io.ReadAll(r)
		}
		damaged := err != nil || !bytes.Equal(content, plain)
		if got, _, status := verified(t, changed); (status == cli.StatusFailed) != damaged {
			t.Fatalf("byte %d: %d, %v, damaged: %t", at, status, got, damaged)
		}
		if got, _, status := verified(t, text[:at]); status != cli.StatusFailed {
			t.Fatalf("%d of %d bytes: %v", at, len(text), got)
		}
	}
	if _, problems, status := verified(t, append(text, 'x')); status != cli.StatusFailed {
		t.Error(problems)
	}
}

func TestKeysOfAnotherSource(t *testing.T) {
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	other := string(keys.FormatJWK(key().ID, &largeKey().Private.PublicKey))
	own := string(r.JWK)
	for name, test := range map[string]struct {
		file   string
		status int
	}{
		"the key":           {own, 0},
		"another of its id": {other, cli.StatusFailed},
		"no key":            {"{}", cli.StatusFailed},
		"no JSON":           {"x", cli.StatusUsage},
	} {
		folder := filepath.Dir(write(t, []byte(test.file)))
		out, stderr, status := run(t.Context(), "verify", write(t, lines(t, r, unsigned(r))), "--keys", folder)
		if status != test.status {
			t.Errorf("%s: %d, %s%s", name, status, out, stderr)
		}
		if status == cli.StatusFailed && !strings.Contains(out, "f:1") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if _, stderr, status := run(t.Context(), "verify", "f", "--keys", "missing"); status != cli.StatusUsage {
		t.Error(status, stderr)
	}
}

func TestProgressIsShown(t *testing.T) {
	now := accepted
	var stderr bytes.Buffer
	p := &pass{Program: &cli.Program{Err: &stderr, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}}, got: func(*item) {}}
	if err := p.run(t.Context(), []string{write(t, bytes.Repeat([]byte("x\n"), 9))}); err != nil {
		t.Fatal(err)
	}
	if want := "4 records\n8 records\n"; stderr.String() != want {
		t.Errorf("%s, want %s", &stderr, want)
	}
}

func TestSeveralFilesAreRead(t *testing.T) {
	r := lines(t, signed(t, key(), paymenttest.Delivery(paymenttest.Event())))
	one, two, damaged := write(t, r), write(t, compressed(r)), write(t, []byte("damaged\n"))
	out, stderr, status := run(t.Context(), "verify", one, two, damaged)
	if status != cli.StatusFailed || !strings.Contains(out, "verified    2\nfailed      1\nduplicates  1\n") ||
		!strings.Contains(out, damaged+":1") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, stderr, status := run(t.Context(), "verify", missing); status != cli.StatusFailed ||
		!strings.Contains(stderr, missing) {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestCtrlCEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, stderr, status := run(ctx, "verify", write(t, []byte("{}\n")))
	if status != cli.StatusInterrupted || out != "" || !strings.HasSuffix(stderr, "payhook: interrupted\n") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

// bucket is an S3 bucket with versions, by key?versionId. It also has the answers of DynamoDB and
// CloudFormation.
type bucket map[string][]byte

func (b bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("X-Amz-Target") != "": // of DynamoDB
		w.Write(b["ledger"])
		return
	case r.URL.Path == "/":
		w.Write(b["stack"])
		return
	}
	query := r.URL.Query()
	if !query.Has("versions") {
		text, ok := b[strings.TrimPrefix(r.URL.Path, "/evidence-1/")+"?"+query.Get("versionId")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Write(text)
		return
	}
	fmt.Fprint(w, `<ListVersionsResult><IsTruncated>false</IsTruncated>`)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		key, version, _ := strings.Cut(name, "?")
		if strings.HasPrefix(key, query.Get("prefix")) {
			fmt.Fprintf(w, `<Version><Key>%s</Key><VersionId>%s</VersionId><IsLatest>%t</IsLatest><Size>%d</Size>
				</Version>`, key, version, version == "1", len(b[name]))
		}
	}
	fmt.Fprint(w, `</ListVersionsResult>`)
}

// account sets the usual variables for a place of AWS.
func account(t *testing.T, endpoint string) {
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "eu-north-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1", "NO_PROXY": "127.0.0.1",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
	t.Chdir(t.TempDir())
}

func TestAllVersionsOfObjectsAreRead(t *testing.T) {
	b := bucket{}
	for i := range 4 {
		r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
		b[fmt.Sprintf("2026/01/%02d/a?1", i)] = compressed(lines(t, r))
		b[fmt.Sprintf("2026/01/%02d/a?0", i)] = lines(t, r)
	}
	b["2026/02/a?1"] = []byte("damaged")
	server := httptest.NewServer(b)
	defer server.Close()
	account(t, server.URL)
	out, stderr, status := run(t.Context(), "verify", "s3://evidence-1/2026/01/")
	if status != 0 || !strings.Contains(out, "verified    8") || !strings.Contains(out, "duplicates  4") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	if out, _, status := run(t.Context(), "verify", "s3://evidence-1"); status != cli.StatusFailed ||
		!strings.Contains(out, "s3://evidence-1/2026/02/a?versionId=1:1") {
		t.Errorf("%d, %s", status, out)
	}
	account(t, "http://127.0.0.1:1")
	if _, stderr, status := run(t.Context(), "verify", "s3://evidence-1"); status != cli.StatusUnreachable {
		t.Errorf("%d, %s", status, stderr)
	}
}

// stack returns the answer of CloudFormation for a stack.
func stack(evidence bool) []byte {
	outputs := []string{names.WebhookURLOutput, names.EventBusNameOutput, names.LedgerTableOutput,
		names.KeysTableOutput, names.ParkingBucketOutput, names.ClaimBucketOutput, names.TokenSecretOutput,
		names.CredentialsSecretOutput, names.WebhookFunctionOutput, names.RedriveFunctionOutput,
		names.TokenFunctionOutput, names.WebhookLogsOutput, names.RedriveLogsOutput, names.TokenLogsOutput}
	if evidence {
		outputs = append(outputs, names.EvidenceBucketOutput)
	}
	text := "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>" +
		"<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>"
	for _, name := range outputs {
		text += fmt.Sprintf("<member><OutputKey>%s</OutputKey><OutputValue>evidence-1</OutputValue></member>", name)
	}
	return []byte(text + "</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>")
}

// find31 finds the record of an event in an object of that key of January 31.
func find31(t *testing.T, id, key string, text []byte) (out, stderr string, status int) {
	t.Helper()
	server := httptest.NewServer(bucket{"stack": stack(true), "2026/01/31/" + key + "?1": text})
	defer server.Close()
	account(t, server.URL)
	return run(t.Context(), "find", id, "--stack", "Payhook", "--from", "2026-01-31", "--to", "2026-01-31")
}

func TestTheDaysAroundTheRecordAreSearched(t *testing.T) {
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	again := r
	again.AcceptedAt = again.AcceptedAt.Add(time.Hour)
	id, text := r.EventIDs[0], lines(t, again, r)
	item := func(times string) []byte {
		return fmt.Appendf(nil, `{"Item":{"eventId":{"S":%q},"digest":{"B":%q}%s}}`, id,
			base64.StdEncoding.EncodeToString(make([]byte, 32)), times)
	}
	times := func(name string, at time.Time) string { return fmt.Sprintf(`,%q:{"N":"%d"}`, name, at.UnixMilli()) }
	recorded := times("recordedAt", accepted)
	// A repeated delivery was recorded as evidence ten days later.
	later := recorded + times("evidenceAt", accepted.AddDate(0, 0, 10))
	without, with := stack(false), stack(true)
	days := []string{"--from", "2026-01-11", "--to", "2026-01-12"}
	for name, test := range map[string]struct {
		stack, ledger []byte
		day           string // of the record
		args          []string
		status        int
		message       string
	}{
		"the day before": {with, item(recorded), "2026/01/30", nil, 0, ""},
		"the day":        {with, item(recorded), "2026/01/31", nil, 0, ""},
		"the day after":  {with, item(recorded), "2026/02/01", nil, 0, ""},
		"two days after": {with, item(recorded), "2026/02/02", nil, cli.StatusFailed, "no record of the event"},
		"ten days later": {with, item(later), "2026/02/11", nil, 0, ""},
		"long ago":       {with, []byte("{}"), "2026/01/31", nil, cli.StatusUsage, "--from and --to"},
		"with a range":   {with, []byte("{}"), "2026/01/10", days, 0, ""},
		"the end of it":  {with, []byte("{}"), "2026/01/13", days, 0, ""},
		"outside":        {with, []byte("{}"), "2026/01/14", days, 1, "no record"},
		"until today": {with, nil, time.Now().UTC().Format("2006/01/02"),
			[]string{"--from", time.Now().UTC().AddDate(0, 0, -3).Format(time.DateOnly)}, 0, ""},
		"not a day":        {with, nil, "2026/01/14", []string{"--from", "yesterday"}, cli.StatusUsage, "--from"},
		"without evidence": {without, item(recorded), "2026/01/31", nil, cli.StatusUsage, "keeps no evidence"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(bucket{"stack": test.stack, "ledger": test.ledger, test.day + "/a?1": text})
			defer server.Close()
			account(t, server.URL)
			args := append([]string{"find", id, "--stack", "Payhook"}, test.args...)
			out, stderr, status := run(t.Context(), args...)
			if status != test.status || !strings.Contains(stderr, test.message) ||
				status == 0 && !strings.Contains(out, "s3://evidence-1/"+test.day+"/a?versionId=1:2 verifies") {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
		})
	}
}

// The commands that find prints verify the record with OpenSSL.
func TestOpenSSLVerifiesTheFoundRecord(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: the commands that payhook evidence find prints were not tried")
	}
	large := paymenttest.RawDelivery("0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", paymenttest.Encode(paymenttest.Event()),
		bytes.Repeat([]byte(" "), 5<<20))
	upper := paymenttest.Event()
	upper.EventID = strings.ToUpper(upper.EventID)
	for name, r := range map[string]records.Record{
		"upper case": signed(t, key(), paymenttest.Delivery(upper)),
		"2048 bits":  signed(t, key(), paymenttest.Delivery(paymenttest.Events(3)...)),
		"3072 bits":  signed(t, largeKey(), paymenttest.Delivery(paymenttest.Event())),
		"in parts":   signed(t, key(), large),
		"both":       certified(signed(t, key(), paymenttest.Delivery(paymenttest.Event()))),
		"mtls":       unsigned(signed(t, key(), paymenttest.Delivery(paymenttest.Event()))),
		"4096 bits":  signed(t, paymenttest.NewKey(4096), paymenttest.Delivery(paymenttest.Event())),
	} {
		t.Run(name, func(t *testing.T) {
			other := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
			later := r
			later.FunctionVersion = "2" // found as well
			id := r.EventIDs[len(r.EventIDs)-1]
			script, stderr, status := find31(t, id, "a\nfalse\n", compressed(lines(t, other, r, later)))
			if status != 0 {
				t.Fatalf("%d, %s%s", status, script, stderr)
			}
			file := strings.ToLower(id) + ".evidence.json"
			if out, stderr, status := run(t.Context(), "verify", file); status != 0 {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
			shell := func() (string, error) {
				out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput()
				return string(out), err
			}
			want := ""
			if r.HasSignature() {
				want += "Verified OK\n"
			}
			if r.Certificate != nil {
				want += file + ".chain: OK\n"
			}
			if out, err := shell(); err != nil || out != want {
				t.Fatalf("%v: %s\n%s", err, out, script)
			}
			if !r.HasSignature() {
				return
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text[bytes.Index(text, []byte(`"payload":"`))+20] ^= 2
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := shell(); err == nil || strings.Contains(out, "Verified OK") {
				t.Errorf("a changed payload: %v, %s", err, out)
			}
		})
	}
}

func TestWhatIsNotFound(t *testing.T) {
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	forged := r
	forged.EventIDs = []string{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"}
	for id, want := range map[string]struct {
		status  int
		message string
	}{
		"x":                                    {cli.StatusUsage, "must be a UUID"},
		"1b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d": {cli.StatusFailed, "no record of the event"},
		forged.EventIDs[0]:                     {cli.StatusFailed, "a?versionId=1:1: "},
		r.EventIDs[0]:                          {0, ""},
	} {
		if out, stderr, status := find31(t, id, "a", lines(t, forged, r)); status != want.status ||
			!strings.Contains(stderr, want.message) {
			t.Errorf("%s: %d, %s%s", id, status, out, stderr)
		}
	}
}

// BenchmarkVerify verifies 100,000 different records in one compressed file.
func BenchmarkVerify(b *testing.B) {
	file := filepath.Join(b.TempDir(), "evidence.gz")
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w := gzip.NewWriter(f)
	const n = 100_000
	r := signed(b, key(), paymenttest.Delivery(paymenttest.Event()))
	for i := range n {
		if i%1000 == 0 {
			r = signed(b, key(), paymenttest.Delivery(paymenttest.Event()))
		}
		r.FunctionVersion = fmt.Sprint(i)
		w.Write(lines(b, r))
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if out, stderr, status := run(b.Context(), "verify", file); status != 0 {
			b.Fatal(status, out, stderr)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
}
