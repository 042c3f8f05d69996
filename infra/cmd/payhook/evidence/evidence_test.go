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

// run runs the command below evidence. in is standard input.
func run(ctx context.Context, in io.Reader, args ...string) (out, stderr string, status int) {
	var o, e bytes.Buffer
	p := &cli.Program{In: in, Out: &o, Err: &e, Now: time.Now}
	target := &deployment.Target{}
	root := p.Root("test")
	cli.TargetFlags(root, target)
	root.AddCommand(Command(p, target))
	status = p.Run(ctx, root, append([]string{"evidence"}, args...))
	return o.String(), e.String(), status
}

// verified verifies standard input, and returns the last line of the summary in JSON.
func verified(t *testing.T, text []byte, args ...string) (summary map[string]int, problems []string, status int) {
	t.Helper()
	args = append([]string{"verify", "-", "--json"}, args...)
	out, stderr, status := run(t.Context(), bytes.NewReader(text), args...)
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
		problem string // how it begins
	}{
		"plain":        {both, numbers{"verified": 2, "keysNotCompared": 2, "lines": 2}, ""},
		"gzip":         {compressed(both), numbers{"verified": 2, "keysNotCompared": 2, "lines": 2}, ""},
		"no line feed": {both[:len(both)-1], numbers{"verified": 2, "keysNotCompared": 2, "lines": 2}, ""},
		"two members": {slices.Concat(compressed(lines(t, one)), compressed(lines(t, two))),
			numbers{"verified": 2, "keysNotCompared": 2, "lines": 2}, ""},
		"a line again": {slices.Concat(both, lines(t, one)),
			numbers{"verified": 3, "repeated": 1, "keysNotCompared": 2, "lines": 3}, ""},
		"a delivery again": {slices.Concat(both, lines(t, later)),
			numbers{"verified": 3, "recordedAgain": 1, "keysNotCompared": 3, "lines": 3}, ""},
		"mtls alone": {lines(t, one, unsigned(one)),
			numbers{"verified": 2, "recordedAgain": 1, "notSigned": 1, "keysNotCompared": 1, "lines": 2}, ""},
		"parts": {slices.Concat(slices.Concat(parts...), lines(t, large)),
			numbers{"verified": 1, "keysNotCompared": 1, "lines": 2 * len(parts)}, ""},
		"a missing part": {slices.Concat(both, parts[0], slices.Concat(parts[2:]...)),
			numbers{"verified": 2, "failed": 1, "keysNotCompared": 2, "lines": 1 + len(parts)},
			`{"at":"-:3","error":"parts of the record are missing`},
		"other ids": {slices.Concat(lines(t, forged), both),
			numbers{"verified": 2, "failed": 1, "keysNotCompared": 2, "lines": 3},
			`{"at":"-:1","error":"evidence: what is stored is not what was accepted: the ids`},
		"an empty line": {slices.Concat(both, []byte("\n")),
			numbers{"verified": 2, "failed": 1, "keysNotCompared": 2, "lines": 3},
			`{"at":"-:3","error":"evidence: damaged: the line is too short`},
		"nothing":            {nil, numbers{}, ""},
		"an empty gzip file": {compressed(nil), numbers{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems, status := verified(t, test.text)
			maps.DeleteFunc(got, func(name string, n int) bool { return n == 0 || name == "files" })
			want := 0
			if test.problem != "" || len(test.numbers) == 0 {
				want = cli.StatusFailed
			}
			if all := strings.Join(problems, ""); !maps.Equal(got, test.numbers) || status != want ||
				len(problems) != test.numbers["failed"] || !strings.HasPrefix(all, test.problem) {
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
	own, set := string(r.JWK), `{"keys":[{"kty":"EC","kid":"x"},%s]}`
	for name, test := range map[string]struct {
		file   string
		status int
	}{
		"the key":           {own, 0},
		"in upper case":     {strings.Replace(own, key().ID, strings.ToUpper(key().ID), 1), 0},
		"a set":             {fmt.Sprintf(set, own), 0},
		"another of its id": {other, cli.StatusFailed},
		"another in a set":  {fmt.Sprintf(set, other), cli.StatusFailed},
		"another id":        {strings.Replace(own, key().ID, largeKey().ID, 1), cli.StatusFailed},
		"no key":            {"{}", cli.StatusFailed},
		"no JSON":           {"x", cli.StatusUsage},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "key.json"), []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		out, stderr, status := run(t.Context(), bytes.NewReader(lines(t, r, unsigned(r))), "verify", "-", "--keys",
			folder)
		if status != test.status || strings.Contains(out, "keysNotCompared") {
			t.Errorf("%s: %d, %s%s", name, status, out, stderr)
		}
		if status == cli.StatusFailed && !strings.Contains(out, "-:1") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if _, stderr, status := run(t.Context(), nil, "verify", "-", "--keys", "missing"); status != cli.StatusUsage {
		t.Error(status, stderr)
	}
}

func TestProgressIsShown(t *testing.T) {
	now := accepted
	var stderr bytes.Buffer
	p := &cli.Program{In: bytes.NewReader(bytes.Repeat([]byte("x\n"), 7)), Err: &stderr, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}}
	s := &scan{options: &options{Program: p}, look: verify, got: func(*item) {}}
	if err := s.run(t.Context(), []string{"-"}); err != nil {
		t.Fatal(err)
	}
	const want = "4 records in 1 file, 5s, 1 a second\n7 records in 1 file, 9s, 1 a second\n"
	if stderr.String() != want {
		t.Errorf("%s, want %s", &stderr, want)
	}
}

func TestFilesAndFoldersAreRead(t *testing.T) {
	folder := t.TempDir()
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	for name, text := range map[string][]byte{"a": lines(t, r), "2026/01/b.gz": compressed(lines(t, r)),
		"2026/02/c": []byte("damaged\n")} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	out, stderr, status := run(t.Context(), nil, "verify", folder, filepath.Join(folder, "a"))
	if status != cli.StatusFailed || !strings.Contains(out, "verified         3") ||
		!strings.Contains(out, "repeated         2") || !strings.Contains(out, filepath.Join("2026", "02", "c")+":1") ||
		!strings.Contains(stderr, "4 records in 4 files, ") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	missing := filepath.Join(folder, "missing")
	if _, stderr, status := run(t.Context(), nil, "verify", missing); status != cli.StatusFailed ||
		!strings.Contains(stderr, missing) {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestCtrlCEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, stderr, status := run(ctx, endless(cancel), "verify", "-")
	if status != cli.StatusInterrupted || out != "" || !strings.HasSuffix(stderr, "payhook: interrupted\n") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

// endless reads lines without end, and is called for each read.
type endless func()

func (e endless) Read(p []byte) (int, error) {
	e()
	return copy(p, "{}\n"), nil
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
	for i := range 40 { // more than are fetched at once
		r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
		b[fmt.Sprintf("2026/01/%02d/a?1", i)] = compressed(lines(t, r))
		b[fmt.Sprintf("2026/01/%02d/a?0", i)] = lines(t, r)
	}
	b["2026/02/a?1"] = []byte("damaged")
	server := httptest.NewServer(b)
	defer server.Close()
	account(t, server.URL)
	out, stderr, status := run(t.Context(), nil, "verify", "s3://evidence-1/2026/01/")
	if status != 0 || !strings.Contains(out, "verified         80") || !strings.Contains(out, "repeated         40") ||
		!strings.Contains(out, "hidden           40") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	if out, _, status := run(t.Context(), nil, "verify", "s3://evidence-1"); status != cli.StatusFailed ||
		!strings.Contains(out, "s3://evidence-1/2026/02/a:1") {
		t.Errorf("%d, %s", status, out)
	}
	account(t, "http://127.0.0.1:1")
	if _, stderr, status := run(t.Context(), nil, "verify", "s3://evidence-1"); status != cli.StatusUnreachable {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestTheDaysAroundTheRecordAreSearched(t *testing.T) {
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	id, text := r.EventIDs[0], lines(t, r)
	item := func(times string) []byte {
		return fmt.Appendf(nil, `{"Item":{"eventId":{"S":%q},"digest":{"B":%q}%s}}`, id,
			base64.StdEncoding.EncodeToString(make([]byte, 32)), times)
	}
	times := func(name string, at time.Time) string { return fmt.Sprintf(`,%q:{"N":"%d"}`, name, at.UnixMilli()) }
	recorded := times("recordedAt", accepted)
	// A repeated delivery was recorded as evidence ten days later.
	later := recorded + times("evidenceAt", accepted.AddDate(0, 0, 10))
	all := map[string]string{}
	for _, name := range []string{names.WebhookURLOutput, names.EventBusNameOutput, names.LedgerTableOutput,
		names.KeysTableOutput, names.ParkingBucketOutput, names.ClaimBucketOutput, names.TokenSecretOutput,
		names.CredentialsSecretOutput, names.WebhookFunctionOutput, names.RedriveFunctionOutput,
		names.TokenFunctionOutput, names.WebhookLogsOutput, names.RedriveLogsOutput, names.TokenLogsOutput} {
		all[name] = "x"
	}
	stack := func(outputs map[string]string) []byte {
		text := "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Payhook</StackName>" +
			"<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>"
		for name, value := range outputs {
			text += fmt.Sprintf("<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>", name, value)
		}
		return []byte(text + "</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>")
	}
	without := stack(all)
	all[names.EvidenceBucketOutput] = "evidence-1"
	with := stack(all)
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
			out, stderr, status := run(t.Context(), nil, args...)
			if status != test.status || !strings.Contains(stderr, test.message) ||
				status == 0 && !strings.Contains(out, "s3://evidence-1/"+test.day+"/a:1, verifies") {
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
		"upper case":   signed(t, key(), paymenttest.Delivery(upper)),
		"2048 bits":    signed(t, key(), paymenttest.Delivery(paymenttest.Events(3)...)),
		"3072 bits":    signed(t, largeKey(), paymenttest.Delivery(paymenttest.Event())),
		"in parts":     signed(t, key(), large),
		"both":         certified(signed(t, key(), paymenttest.Delivery(paymenttest.Event()))),
		"mtls":         unsigned(signed(t, key(), paymenttest.Delivery(paymenttest.Event()))),
		"quoted names": signed(t, paymenttest.NewKey(4096), paymenttest.Delivery(paymenttest.Event())),
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			other := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
			later := r
			later.FunctionVersion = "2" // found as well
			from := "all.gz"
			if name == "quoted names" {
				from = "a\nfalse\n"
			}
			if err := os.WriteFile(from, compressed(lines(t, other, r, later)), 0o600); err != nil {
				t.Fatal(err)
			}
			id := strings.ToLower(r.EventIDs[len(r.EventIDs)-1])
			args, file := []string{"find", strings.ToUpper(id), from}, id+".evidence.json"
			if name == "quoted names" {
				file = "it's a $file.json"
				args = append(args, "--output", file)
			}
			script, stderr, status := run(t.Context(), nil, args...)
			if status != 0 || name == "both" && !strings.Contains(script, "from all.gz:2, ") {
				t.Fatalf("%d, %s%s", status, script, stderr)
			}
			if out, stderr, status := run(t.Context(), nil, "verify", file); status != 0 {
				t.Errorf("%d, %s%s", status, out, stderr)
			}
			if _, _, status := run(t.Context(), nil, args...); status != cli.StatusUsage {
				t.Errorf("the file was written again: %d", status)
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
	t.Chdir(t.TempDir())
	r := signed(t, key(), paymenttest.Delivery(paymenttest.Event()))
	forged := r
	forged.EventIDs = []string{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"}
	if err := os.WriteFile("all", lines(t, forged, r), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		status  int
		message string
	}{
		"x":                                    {cli.StatusUsage, "must be the UUID"},
		"1b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d": {cli.StatusFailed, "no record of the event"},
		forged.EventIDs[0]:                     {cli.StatusFailed, "all:1: "},
		r.EventIDs[0]:                          {0, "2 records in 1 file, "},
	} {
		if out, stderr, status := run(t.Context(), nil, "find", id, "all"); status != want.status ||
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
		if out, stderr, status := run(b.Context(), nil, "verify", file); status != 0 {
			b.Fatal(status, out, stderr)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
}
