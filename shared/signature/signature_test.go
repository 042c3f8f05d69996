package signature

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const keyID = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"

var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func sign(t testing.TB, payload string, timestamp string) Parts {
	t.Helper()
	text, err := Sign(testKey(), []byte(payload), timestamp, keyID)
	if err != nil {
		t.Fatal(err)
	}
	return Parts{Timestamp: timestamp, KeyID: keyID, Signature: text}
}

// wycheproof returns a file of Wycheproof's test vectors. They are 26 MB, and every module that imports Payhook would
// need them if go.mod did: the go command downloads them when they are needed for the first time, and checks them
// against the checksum database.
func wycheproof(t *testing.T, name string) []byte {
	t.Helper()
	const module = "github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a"
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // in a module, the command would add the vectors to its go.sum
	out, failed := cmd.Output()
	var downloaded struct{ Dir, Error string }
	err := json.Unmarshal(out, &downloaded)
	text, missing := os.ReadFile(filepath.Join(downloaded.Dir, "testvectors_v1", name))
	if err := errors.Join(failed, err, missing); err != nil {
		t.Fatal(err, downloaded.Error)
	}
	return text
}

// The test vectors are those of Wycheproof. Verify must accept every signature that they mark as valid, and reject all
// others.
func TestVerifyAgreesWithWycheproof(t *testing.T) {
	for _, bits := range []int{2048, 3072, 4096} {
		var vectors struct {
			NumberOfTests int
			TestGroups    []struct {
				PublicKey struct{ Modulus, PublicExponent string }
				Tests     []struct {
					TcID                      int
					Comment, Msg, Sig, Result string
				}
			}
		}
		if err := json.Unmarshal(wycheproof(t, fmt.Sprintf("rsa_signature_%d_sha256_test.json", bits)),
			&vectors); err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, group := range vectors.TestGroups {
			n, _ := new(big.Int).SetString(group.PublicKey.Modulus, 16)
			e, _ := new(big.Int).SetString(group.PublicKey.PublicExponent, 16)
			key := &rsa.PublicKey{N: n, E: int(e.Int64())}
			for _, v := range group.Tests {
				ran++
				msg, unread := hex.DecodeString(v.Msg)
				sig, failed := hex.DecodeString(v.Sig)
				err := verifyDigest(key, sha256.Sum256(msg), base64.RawURLEncoding.EncodeToString(sig))
				// "acceptable" is a signature whose DigestInfo has no NULL, which RFC 8017, section 8.2.2 does not
				// allow.
				if unread != nil || failed != nil || (err == nil) != (v.Result == "valid") ||
					err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrMismatch) {
					t.Errorf("%d bits, tc%d (%s): %s, got %v", bits, v.TcID, v.Comment, v.Result, err)
				}
			}
		}
		if ran != vectors.NumberOfTests || ran == 0 {
			t.Errorf("%d bits: ran %d of %d", bits, ran, vectors.NumberOfTests)
		}
	}
}

func TestDigestIsOfPayloadTimestampAndKeyID(t *testing.T) {
	// Section 5.4, step 3, written out.
	want := sha256.Sum256([]byte("{\"a\":1}\n2026-01-31T12:00:00.000Z\n" + keyID))
	if got := digest([]byte(`{"a":1}`), "2026-01-31T12:00:00.000Z", keyID); got != want {
		t.Error("the digest is not that of the message")
	}
	long := strings.Repeat("x", 500)
	if digest([]byte("p"), long, long) != sha256.Sum256([]byte("p\n"+long+"\n"+long)) {
		t.Error("the digest of long texts is not that of the message")
	}
}

func TestVerifyRejectsEveryChangedBit(t *testing.T) {
	key, payload := testKey().PublicKey, `{"deliveryId":"x","amount":100.00}`
	proof := sign(t, payload, "2026-01-31T12:00:00.000Z")
	raw, err := encoding.DecodeString(proof.Signature)
	if err != nil || Verify(&key, []byte(payload), proof) != nil {
		t.Fatal("unchanged: it does not verify", err)
	}
	changed := proof
	for name, part := range map[string]struct {
		bytes []byte
		set   func(b []byte)
	}{
		"payload":        {[]byte(payload), func(b []byte) { payload = string(b) }},
		"timestamp":      {[]byte(proof.Timestamp), func(b []byte) { changed.Timestamp = string(b) }},
		"key id":         {[]byte(proof.KeyID), func(b []byte) { changed.KeyID = string(b) }},
		"signature text": {[]byte(proof.Signature), func(b []byte) { changed.Signature = string(b) }},
		"signature":      {raw, func(b []byte) { changed.Signature = encoding.EncodeToString(b) }},
		"modulus":        {key.N.Bytes(), func(b []byte) { key.N = new(big.Int).SetBytes(b) }},
	} {
		for i := range len(part.bytes) * 8 {
			part.bytes[i/8] ^= 1 << (i % 8)
			if part.set(part.bytes); Verify(&key, []byte(payload), changed) == nil {
				t.Errorf("verifies with bit %d of the %s changed", i, name)
			}
			part.bytes[i/8] ^= 1 << (i % 8)
		}
		part.set(part.bytes)
	}
}

// The message of section 5.4 does not mark its parts. Verify accepts only one split, also if the timestamp is not
// checked against a window.
func TestAMessageHasOnePayload(t *testing.T) {
	proof := sign(t, "a\nb", "c")
	split := Parts{Timestamp: "b\nc", KeyID: keyID, Signature: proof.Signature}
	if digest([]byte("a"), split.Timestamp, keyID) != digest([]byte("a\nb"), "c", keyID) {
		t.Fatal("it is not the same message")
	}
	if err := Verify(&testKey().PublicKey, []byte("a"), split); !errors.Is(err, ErrMalformed) {
		t.Errorf("a timestamp with a line feed: %v", err)
	}
	split.Timestamp, split.KeyID = "b", "c\n"+keyID
	if err := Verify(&testKey().PublicKey, []byte("a"), split); !errors.Is(err, ErrMalformed) {
		t.Errorf("a key id with a line feed: %v", err)
	}
}

func TestVerifyAcceptsOneTextPerSignature(t *testing.T) {
	proof := sign(t, "{}", "1769860800")
	raw, err := base64.RawURLEncoding.DecodeString(proof.Signature)
	if err != nil {
		t.Fatal(err)
	}
	s, encode := proof.Signature, base64.RawURLEncoding.EncodeToString
	// The last character holds 2 bits of the signature, and 4 that must be zero: A, Q, g or w, of which the next
	// character of the alphabet differs in one bit.
	stray := s[:len(s)-1] + string(s[len(s)-1]+1)
	for want, texts := range map[error][]string{
		nil: {s, s + "=="},
		ErrMalformed: {
			s + "=", s + "===", s + "..", s[:100] + "\n" + s[100:], s + "=\n", s[:340] + "\n\n", s + "\r\n", " " + s,
			s + " ", strings.Repeat("+/", 171), stray, encode(append([]byte{0}, raw...)), encode(raw[:255]),
			hex.EncodeToString(raw), "", strings.Repeat("A", 1<<20),
		},
		ErrMismatch: {encode(make([]byte, 256))},
	} {
		for _, text := range texts {
			proof.Signature = text
			if err := Verify(&testKey().PublicKey, []byte("{}"), proof); !errors.Is(err, want) {
				t.Errorf("%.400q: got %v, want %v", text, err, want)
			}
		}
	}
}

func TestCheckTimeRejectsOldAndFutureTimestamps(t *testing.T) {
	now, five := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), 5*time.Minute
	at := func(d time.Duration) string { return FormatTime(now.Add(d)) }
	unix := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).UnixMilli(), 10) }
	for want, texts := range map[error][]string{
		nil: {at(0), unix(0), "2026-01-31T14:00:00+02:00", at(-five), unix(five)},
		ErrOutsideWindow: {at(-five - time.Millisecond), unix(five + time.Millisecond), "Sat, 31 Jan 2026 12:05:01 GMT",
			"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9223372036854775807", "0"},
		ErrMalformed: {"2026-01-31T12:00:00", "", "now"},
	} {
		for _, text := range texts {
			if err := CheckTime(text, now, five); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", text, err, want)
			}
			if err := CheckTime(text, now, 0); err != nil {
				t.Errorf("%s, without a check: %v", text, err)
			}
		}
	}
}

func TestTimeOfReadsEveryFormat(t *testing.T) {
	second := time.Date(2026, 11, 25, 17, 28, 9, 0, time.UTC)
	milli, micro, nano := second.Add(822e6), second.Add(123456e3), second.Add(123456789)
	for text, want := range map[string]time.Time{
		// Those of payment.ParseTime.
		"2026-11-25T17:28:09Z": second, "20261125T182809,822+01": milli, "2026-11-25T18:28:09.822+01:00[+01:00]": milli,
		"Wed, 25 Nov 2026 17:28:09 GMT": second, "Wed, 25 Nov 2026 17:28:09.822 GMT": milli,
		"Wednesday, 25-Nov-26 17:28:09 GMT": second, "Wed Nov 25 17:28:09 2026": second,

		"1795627689": second, "01795627689": second, "1795627689.0": second, "1795627689.822": milli,
		"1795627689.123456": micro, "1795627689.1234567899": nano,
		"1795627689." + strings.Repeat("0", 1000): second,
		"1795627689822": milli, "1795627689123.456789": nano, "1795627689123456": micro, "1795627689123456.789": nano,
		"1795627689123456789": nano, "1795627689123456789.9": nano,
		"0": time.Unix(0, 0).UTC(), "99999999999": time.Unix(99999999999, 0).UTC(),
		"100000000000": time.UnixMilli(100000000000).UTC(), "99999999999999": time.UnixMilli(99999999999999).UTC(),
		"100000000000000":     time.UnixMicro(100000000000000).UTC(),
		"99999999999999999":   time.UnixMicro(99999999999999999).UTC(),
		"100000000000000000":  time.Unix(0, 100000000000000000).UTC(),
		"9223372036854775807": time.Unix(0, math.MaxInt64).UTC(),
	} {
		if got, ok := TimeOf(text); !ok || got != want {
			t.Errorf("%s: %s, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "now", "2026-11-25", "2026-11-25T17:28:09", "20261125T172809", "Thu, 25 Nov 2026 17:28:09 GMT",
		"-1", "+1795627689", "1_795_627_689", "0x6b0710e9", "1795627689.", ".5", "1795627689,822", "1795627689.-5",
		"1795627689.8.2", "1.795627689e9", " 1795627689", "1795627689 ", "1795627689\n", "١٧٦٩٨٦٠٨٠٠",
		"9223372036854775808", "9999999999999999999", "00000000001795627689", "18446744073709551616",
		strings.Repeat("1", 400),
	} {
		if got, ok := TimeOf(text); ok || !got.IsZero() {
			t.Errorf("%q: %s, %v", text, got, ok)
		}
	}
}

// Two timestamps are never read as one, however they are joined.
func FuzzTimeOf(f *testing.F) {
	texts := []string{"2026-11-25T17:28:09+0000", "20261125T1728Z", "2026-11-25T17:28:09,5Z", "1795627689.822",
		"Wed, 25 Nov 2026 17:28:09 GMT", "Wed, 25 Nov 2026 17:28:09,5 +0000", "1795627689123", "5",
		"Wednesday, 25-Nov-26 17:28:09 GMT", "Wed Nov 25 17:28:09 2026", "2026-11-25T17:28:09Z[UTC]"}
	for _, first := range texts {
		for _, second := range texts {
			f.Add(first, second)
		}
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		at, ok := TimeOf(first)
		if !ok {
			return
		}
		if y := at.Year(); y >= 0 && y <= 9999 {
			again, ok := TimeOf(FormatTime(at))
			if !ok || again != at.Truncate(time.Millisecond) {
				t.Errorf("%q is %s, and again %s, %v", first, at, again, ok)
			}
		}
		if _, ok := TimeOf(second); !ok {
			return
		}
		for _, separator := range []string{",", ", "} {
			if got, ok := TimeOf(first + separator + second); ok {
				t.Errorf("%q and %q are %s", first, second, got)
			}
		}
	})
}

// A text has the form of a signature if it is the canonical text of a number of bytes that is allowed, with or without
// padding.
func TestCheckForm(t *testing.T) {
	for size := 250; size < 262; size++ {
		raw := make([]byte, size)
		_, _ = rand.Read(raw)
		unpadded, padded := base64.RawURLEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw)
		for limits, want := range map[[2]int]error{{size, size}: nil, {1, 1000}: nil, {1, size - 1}: ErrMalformed,
			{size + 1, 1000}: ErrMalformed} {
			for _, text := range []string{unpadded, padded} {
				if err := CheckForm(text, limits[0], limits[1]); !errors.Is(err, want) {
					t.Errorf("%d bytes, %d allowed: %v", size, limits, err)
				}
			}
		}
		for _, text := range []string{padded + "=", unpadded + "===", unpadded + "====", "=" + unpadded,
			unpadded[1:] + "!", unpadded[1:] + "\n"} {
			if err := CheckForm(text, 1, 1000); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d bytes, %q: %v", size, text, err)
			}
		}
	}
	const want = ": the signature is not 256 to 512 bytes in base64url"
	if err := CheckForm("AAAA", 256, 512); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestExtractReadsEachLocation(t *testing.T) {
	want := Parts{Timestamp: "2026-01-31T12:00:00.000Z", KeyID: keyID, Signature: "c2ln"}
	at, kid := "2026-01-31T12%3A00:00.000Z", "&kid="+keyID
	for _, c := range []struct {
		scheme  Scheme
		headers map[string]string
		query   string
	}{
		{Scheme{"X-Signature", "header:X-Timestamp", "header:Kid"},
			map[string]string{"x-signature": "c2ln", "X-TIMESTAMP": want.Timestamp, "kid": keyID}, "Kid=a&at=b"},
		{Scheme{"X-Other", "query:ts", "query:kid"}, map[string]string{"x-other": "c2ln", "ts": "a"},
			"a=b&ts=" + at + kid},
		{Scheme{"X-Other", "query:ts", Location("static:" + keyID)}, map[string]string{"X-other": "c2ln"}, "ts=" + at},
	} {
		if got, err := c.scheme.Extract(c.headers, c.query); err != nil || got != want {
			t.Errorf("%v: got %+v, %v", c.scheme, got, err)
		}
	}
}

// What is signed is the text that was sent: a comma or a plus sign of a timestamp stays.
func TestExtractReturnsTimestampsAsTheyWereSent(t *testing.T) {
	const form = "2026-11-25 17:28:09Z"
	for place, values := range map[Location]map[string]string{
		"header:Date": {
			"Wed, 25 Nov 2026 17:28:09 GMT": "Wed, 25 Nov 2026 17:28:09 GMT",
			"2026-11-25T17:28:09,822+0000":  "2026-11-25T17:28:09,822+0000",
		},
		"query:at": {
			"2026-11-25T17:28:09+00:00":   "2026-11-25T17:28:09+00:00",
			"20261125T172809,8+0000":      "20261125T172809,8+0000",
			"2026-11-25T17%3A28%3A09+00":  "2026-11-25T17:28:09+00",
			"2026-11-25T17:28:09%2B00:00": "2026-11-25T17:28:09+00:00",
			"2026-11-25+17:28:09Z":        form, "2026-11-25%2017:28:09Z": form,
			"2026-11-25%2017:28:09+00": "2026-11-25 17:28:09+00", "2026-11-25+17:28:09%2B00": "2026-11-25 17:28:09+00",
			"Wed,+25+Nov+2026+17:28:09+GMT":             "Wed, 25 Nov 2026 17:28:09 GMT",
			"Wed%2C%2025%20Nov%202026%2017:28:09%20GMT": "Wed, 25 Nov 2026 17:28:09 GMT",
			// Neither is a timestamp: a plus sign is a space.
			"a+b": "a b", "2026-11-25T17:28:09%2000:00": "2026-11-25T17:28:09 00:00",
		},
	} {
		scheme := Scheme{"X-SVC-Signature", place, "query:kid"}
		for sent, want := range values {
			headers, query := map[string]string{"x-svc-signature": "c2ln", "date": sent}, "x=1+1&at="+sent+"&kid="+keyID
			got, err := scheme.Extract(headers, query)
			if err != nil || got.Timestamp != want || got.KeyID != keyID {
				t.Errorf("%s, %s: %q, %v", place, sent, got.Timestamp, err)
			}
			if _, err := scheme.Extract(headers, query+"&at="+sent); (err != nil) != (place == "query:at") {
				t.Errorf("%s, %s, twice: %v", place, sent, err)
			}
		}
	}
}

func TestExtractRejectsWhatIsNotOneText(t *testing.T) {
	const date = "Wed, 25 Nov 2026 17:28:09 GMT"
	for _, scheme := range []Scheme{{"X-SVC-Signature", "header:At", "query:kid"},
		{"X-SVC-Signature", "query:at", "header:Kid"}} {
		// extract puts texts where the scheme reads them; in a query, they are escaped.
		extract := func(signature, timestamp, kid string, others ...string) error {
			query := url.Values{"at": {timestamp}, "kid": {kid}}.Encode()
			headers := map[string]string{"x-sVc-signature": signature, "at": timestamp, "kid": kid, "accept": "a,b"}
			for _, name := range others {
				headers[name] = "c2ln"
			}
			_, err := scheme.Extract(headers, query)
			return err
		}
		for name, c := range map[string]struct{ got, want error }{
			"as it is":                      {extract("c2ln", "soon \u00e4", keyID, "Accept"), nil},
			"no signature":                  {extract("", "1", keyID), ErrMissing},
			"not stored":                    {extract(Redacted, "1", keyID), ErrMissing},
			"no timestamp":                  {extract("c2ln", "", keyID), ErrMissing},
			"no key id":                     {extract("c2ln", "1", ""), ErrMissing},
			"the signature twice, joined":   {extract("c2ln,c2ln", "1", keyID), ErrRepeated},
			"the signature twice, by case":  {extract("c2ln", "1", keyID, "X-SVC-Signature"), ErrRepeated},
			"a timestamp as the signature":  {extract(date, "1", keyID), ErrRepeated},
			"a header with a letter beyond": {extract("c2ln", "1", keyID, "x-\u017fvc-signature"), nil},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%v, %s: got %v, want %v", scheme, name, c.got, c.want)
			}
		}
		for _, c := range []string{"\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\u0085"} {
			for _, err := range []error{extract("c2ln"+c, "1", keyID), extract("c2ln", "1"+c+"2", keyID),
				extract("c2ln", "1", c+keyID)} {
				if !errors.Is(err, ErrMalformed) {
					t.Errorf("%v, %q: %v", scheme, c, err)
				}
			}
		}
	}
	scheme := Scheme{"X-SVC-Signature", "header:At", "query:kid"}
	for _, c := range []struct {
		timestamp, query string
		want             error
	}{
		{date, "kid=" + keyID, nil}, {"1,2", "kid=1", ErrRepeated}, {date + ", " + date, "kid=1", ErrRepeated},
		{"2026-11-25T17:28:09Z,", "kid=1", ErrRepeated}, {"1", "", ErrMissing}, {"1", "kid=1&kid=1", ErrRepeated},
		{"1", "kid=%zz", ErrMalformed},
	} {
		headers := map[string]string{"X-SVC-Signature": "c2ln", "AT": c.timestamp}
		if _, err := scheme.Extract(headers, c.query); !errors.Is(err, c.want) {
			t.Errorf("%s, %s: %v, want %v", c.timestamp, c.query, err, c.want)
		}
	}
	if _, err := scheme.Extract(map[string]string{"at": "1", "x-\u017fvc-signature": "c2ln"}, "kid=1"); !errors.Is(err,
		ErrMissing) {
		t.Errorf("a header with a letter beyond ASCII: %v", err)
	}
}

// Nobody knows all names of credentials, so what the signature does not need is not stored.
func TestRedactKeepsTheValuesThatExtractReads(t *testing.T) {
	const date = "Wed, 25 Nov 2026 17:28:09 GMT"
	scheme := Scheme{"Authorization", "header:Date", "query:kid"}
	headers := map[string]string{"authorization": "c2ln", "AUTHORIZATION": "dHdv", "date": date, "hOST": "a",
		"Host ": "b", "X-Auth-Token": "c", "cookie": "d", "kid": "e", "x-api-key": "", "ho\u017ft": "f"}
	got, _ := scheme.Redact(headers, "", "Host")
	want := map[string]string{"authorization": "c2ln", "AUTHORIZATION": "dHdv", "date": date, "hOST": "a"}
	for name := range headers {
		if _, ok := want[name]; !ok {
			want[name] = Redacted
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || headers["cookie"] != "d" {
		t.Error(diff, headers)
	}
	headers = map[string]string{"authorization": "c2ln", "Date": date}
	for query, want := range map[string]string{
		"":                          "",
		"kid=1":                     "kid=1",
		"token=a&kid=%31+2&b=c=d":   "token=(redacted)&kid=%31+2&b=(redacted)",
		"kid=1&kid=2&token=&=a&&x":  "kid=1&kid=2&token=(redacted)&=(redacted)&&x",
		"%6Bid=1&k%69d=2&%74oken=a": "%6Bid=1&k%69d=2&%74oken=(redacted)",
		"KID=1&kid+=2&kid[]=3":      "KID=(redacted)&kid+=(redacted)&kid[]=(redacted)",
		"kid=1;token=a":             "kid=(redacted);",
		"token=a;b%zz&kid=1":        "token=(redacted);%&kid=1",
		"to;ken=a&kid=1":            "to;ken=(redacted)&kid=1",
		"token=%&kid=1":             "token=(redacted)%&kid=1",
		"%zz=a&kid=1":               "%zz=(redacted)&kid=1",
		"kid=%zz":                   "kid=%zz",
		"authorization=a&date=b":    "authorization=(redacted)&date=(redacted)",
	} {
		kept, got := scheme.Redact(headers, query)
		if got != want || !maps.Equal(kept, headers) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("a", "X-SVC-Signature", "kid=1&at=2026-11-25T17:28:09+00:00&x=1+1")
	f.Add("b;", "\u017fignature", "k%69d=1&at=2026-11-25+17:28:09Z&token=a;b")
	f.Add("c,", "", "kid=1;at=2&%=1&&")
	f.Fuzz(func(t *testing.T, value, name, query string) {
		headers := map[string]string{"x-svc-signature": "c2ln", name: value, strings.ToUpper(name): value}
		for _, scheme := range []Scheme{{"X-SVC-Signature", "query:at", "query:kid"},
			{"X-SVC-Signature", "header:at", "static:" + keyID}} {
			want, wantErr := scheme.Extract(headers, query)
			got, err := scheme.Extract(scheme.Redact(headers, query))
			if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%q, %q: %+v, %v, want %+v, %v", headers, query, got, err, want, wantErr)
			}
		}
	})
}

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]string{ // how the error begins
		"header:X-SVC-Timestamp": "", "query:ts": "", "query:key-id": "", "static:" + keyID: "", "header:Kid": "",
		"static:" + strings.ReplaceAll(keyID, "-", ""): "",
		"header:": "header: must be", "header:a b": "header: must be", "header:a,b": "header: must be",
		"query:": "query: must be", "query:a&b": "query: must be", "static:": "static: must be",
		"static:abc": "static: must be", "static:urn:uuid:" + keyID: "static: must be",
		"": "must be header:NAME or query:NAME, or static:UUID", "header": "header: must be", "cookie:a": "must be",
		"X-SVC-Timestamp": "must be",
	} {
		at, err := ParseKeyIDLocation(text)
		if (want == "") != (err == nil && at == Location(text)) || err != nil && (at != "" ||
			!strings.HasPrefix(err.Error(), want)) {
			t.Errorf("ParseKeyIDLocation(%q): %q, %v", text, at, err)
		}
		at, err = ParseLocation(text)
		id, static := StaticKeyID(text)
		if (err == nil) != (want == "" && !static) || err == nil && at != Location(text) ||
			static != (want == "" && text == "static:"+id) {
			t.Errorf("ParseLocation(%q): %q, %v; the static id is %q", text, at, err, id)
		}
	}
}

func FuzzVerify(f *testing.F) {
	proof := sign(f, "{}", "1769860800")
	for _, seed := range []string{proof.Signature, proof.Signature + "==", "", "====", "\n", strings.Repeat("A", 342),
		strings.Repeat("A", 344)} {
		f.Add(seed)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(proof.Signature)
	f.Fuzz(func(t *testing.T, text string) {
		p := proof
		p.Signature = text
		switch err := Verify(&testKey().PublicKey, []byte("{}"), p); {
		case err == nil:
			if text != proof.Signature && text != proof.Signature+"==" {
				t.Fatalf("a second text verifies: %q", text)
			}
		case errors.Is(err, ErrMismatch):
			b, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSuffix(text, "=="))
			if err != nil || bytes.Equal(b, raw) {
				t.Fatalf("ErrMismatch for a malformed or valid signature: %q", text)
			}
		case !errors.Is(err, ErrMalformed):
			t.Fatalf("not an error of this package: %v", err)
		}
	})
}
