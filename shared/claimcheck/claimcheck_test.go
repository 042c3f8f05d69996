package claimcheck_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/payment"
)

var event = payment.RawEvent{
	EventName: "PAYMENT_STATUS.RELEASED", EventID: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",
	EventTimestamp: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC), SentTimestamp: "2026-01-31T12:00:00.123+0000",
	Bytes: []byte("{ \"amount\" : 100.00 }"),
}

var sum = sha256.Sum256(event.Bytes)

// stored returns a bucket with an event, and the detail that refers to it.
func stored(t testing.TB, e payment.RawEvent) (bucket *awstest.S3, detail []byte) {
	t.Helper()
	bucket = awstest.NewS3()
	bucket.MakeBucket("claims")
	detail, err := claimcheck.NewStore(bucket, "claims").Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return bucket, detail
}

func TestAnEventExistsUntilItIsDeleted(t *testing.T) {
	bucket, detail := stored(t, event)
	store := claimcheck.NewStore(bucket, "claims")
	// Another key begins with that of the first.
	shorter := bytes.Replace(detail, []byte(`.json"`), []byte(`"`), 1)
	for name, test := range map[string]struct {
		detail []byte
		want   error
	}{"stored": {detail, nil}, "a part of a key": {shorter, claimcheck.ErrGone}} {
		if err := store.Exists(t.Context(), test.detail); err != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := store.Exists(t.Context(), []byte("x")); err == nil {
		t.Error("a detail that is no JSON exists")
	}
	bucket.DenyList = true
	if err := store.Exists(t.Context(), detail); err == nil || errors.Is(err, claimcheck.ErrGone) {
		t.Errorf("a list that is denied: %v", err)
	}
	bucket.DenyList = false
	bucket.MakeBucket("claims")
	if err := store.Exists(t.Context(), detail); err != claimcheck.ErrGone {
		t.Errorf("deleted: %v", err)
	}
}

// A content is found by the id alone, in any case, and only if it is not changed.
func TestContentsOfAnEventAreFound(t *testing.T) {
	bucket, _ := stored(t, event)
	second := event
	second.EventID, second.Bytes = strings.ToUpper(event.EventID), []byte(`{"amount":2}`)
	if _, err := claimcheck.NewStore(bucket, "claims").Put(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	find := func(id string, wanted []byte) []byte {
		t.Helper()
		found, err := claimcheck.Find(t.Context(), bucket, "claims", id,
			func(content []byte) bool { return bytes.Equal(content, wanted) })
		if err != nil {
			t.Error(err)
		}
		return found
	}
	for _, want := range [][]byte{event.Bytes, second.Bytes} {
		if got := find(second.EventID, want); !bytes.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := find(event.EventID[:8], event.Bytes); got != nil {
		t.Errorf("another id: %q", got)
	}
	for key := range bucket.Objects("claims") {
		if _, err := bucket.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("claims"), Key: &key,
			Body: strings.NewReader("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if got := find(event.EventID, []byte("{}")); got != nil {
		t.Errorf("changed: %q", got)
	}
	bucket.DenyList = true
	if _, err := claimcheck.Find(t.Context(), bucket, "claims", event.EventID, nil); err == nil {
		t.Error("a list that is denied is no error")
	}
}

func TestResolveReturnsTheSignedEvent(t *testing.T) {
	bucket, detail := stored(t, event)
	if _, err := claimcheck.NewStore(bucket, "claims").Put(t.Context(), event); err != nil ||
		len(bucket.Objects("claims")) != 1 {
		t.Errorf("the same event twice makes %d objects: %v", len(bucket.Objects("claims")), err)
	}
	got, err := claimcheck.Resolve(t.Context(), bucket, detail)
	if err != nil || !bytes.Equal(got, event.Bytes) {
		t.Errorf("got %s, %v", got, err)
	}
	// Nobody can mistake the detail for the event.
	if _, err := payment.DecodeEvent(detail); err == nil || !strings.Contains(err.Error(), "event.claimCheck") {
		t.Errorf("DecodeEvent accepts a reference: %v", err)
	}
	for key := range bucket.Objects("claims") {
		out, err := bucket.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("claims"), Key: &key})
		if err != nil || aws.ToString(out.ContentType) != "application/json" {
			t.Errorf("the object has the type %q, %v", aws.ToString(out.ContentType), err)
		}
	}
	for _, part := range []string{`"bucket":"claims"`, `"size":21`, `"eventTimestamp":"2026-01-31T12:00:00.123+0000"`} {
		if !strings.Contains(string(detail), part) {
			t.Errorf("%s is not in %s", part, detail)
		}
	}
}

// Rules match the amount of an event that is in S3 as they match others.
func TestADetailHasTheFieldsThatRulesMatch(t *testing.T) {
	for _, amount := range []string{"2000000", "1234567890.10", "1E3", "0.00", "-0", "123456789012345678"} {
		raw, err := payment.DecodeRawEvent([]byte(`{"eventName":"PAYMENT_STATUS.RELEASED",` +
			`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60","eventTimestamp":"2026-01-31T12:00:00Z",` +
			`"eventData":{"note":"` + strings.Repeat("x", 1000) + `","amount": ` + amount +
			` ,"paymentCurrency":"\u0045UR",` +
			`"amountType":"PAYMENT","paymentStatus":{"more":[{}],"status":"RELEASED","statusTime":"` +
			strings.Repeat("9", 200) + `"},` +
			`"returns":{"hasReturnDetails":true},"cancelations":{},"cases":{"hasLinkedCases":false,"x":1}}}`))
		if err != nil {
			t.Fatal(err)
		}
		_, detail := stored(t, raw)
		want := `"eventData":{"amount":` + amount +
			`,"paymentCurrency":"\u0045UR","paymentStatus":{"status":"RELEASED"},` +
			`"returns":{"hasReturnDetails":true},"cases":{"hasLinkedCases":false}},"claimCheck":{`
		if !strings.Contains(string(detail), want) {
			t.Errorf("%s is not in %s", want, detail)
		}
	}
}

// A reference has the event's own timestamp, whatever it is, or none. What EventBridge or a reader could not take
// is left out.
func TestADetailHasTheTimestampThatWasSent(t *testing.T) {
	for sent, want := range map[string]string{
		`"2026-01-31T14:00:00+0200"`: `"2026-01-31T14:00:00+0200"`, `"yes\"terday"`: `"yes\"terday"`,
		`"` + strings.Repeat("x", 300<<10) + `"`: "", "99999999999999999999": "", "null": "", `{"a":[]}`: "", `""`: "",
	} {
		raw, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B",` +
			`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",` +
			`"eventTimestamp":` + sent + `}`))
		if err != nil {
			t.Fatal(err)
		}
		bucket, detail := stored(t, raw)
		var got map[string]jsontext.Value
		if err := json.Unmarshal(detail, &got); err != nil || string(got["eventTimestamp"]) != want {
			t.Errorf("%.50s: %s, %v", sent, detail, err)
		}
		if event, err := claimcheck.Resolve(t.Context(), bucket, detail); err != nil || !bytes.Equal(event, raw.Bytes) {
			t.Errorf("%.50s is resolved to %s, %v", sent, event, err)
		}
		again, err := payment.DecodeRawEvent(detail)
		if err != nil || !again.EventTimestamp.Equal(raw.EventTimestamp) {
			t.Errorf("%.50s: the reference has the time %v, %v", sent, again.EventTimestamp, err)
		}
	}
}

func TestResolveSkipsAByteOrderMark(t *testing.T) {
	bucket, detail := stored(t, event)
	got, err := claimcheck.Resolve(t.Context(), bucket, append([]byte("\ufeff"), detail...))
	if err != nil || !bytes.Equal(got, event.Bytes) {
		t.Errorf("%s, %v", got, err)
	}
	marked := append([]byte("\ufeff"), event.Bytes...)
	if got, err := claimcheck.Resolve(t.Context(), bucket, marked); err != nil || !bytes.Equal(got, marked) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestResolveReturnsOtherDetailsUnchanged(t *testing.T) {
	got, err := claimcheck.Resolve(t.Context(), nil, event.Bytes)
	if err != nil || !bytes.Equal(got, event.Bytes) {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestResolveRejectsWhatIsAltered(t *testing.T) {
	for name, body := range map[string]string{"other bytes": "{ \"amount\" : 900.00 }",
		"longer": string(event.Bytes) + " ", "shorter": "{}", "empty": ""} {
		bucket, detail := stored(t, event)
		altered := strings.Replace(string(detail), `"size":21`, fmt.Sprintf(`"size":%d`, len(body)), 1)
		if _, err := claimcheck.Resolve(t.Context(), bucket, []byte(altered)); len(body) != len(event.Bytes) &&
			!errors.Is(err, claimcheck.ErrAltered) {
			t.Errorf("a reference to another size, %s: %v", name, err)
		}
		for key := range bucket.Objects("claims") {
			if _, err := bucket.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("claims"), Key: &key,
				Body: strings.NewReader(body)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := claimcheck.Resolve(t.Context(), bucket, detail); !errors.Is(err, claimcheck.ErrAltered) {
			t.Errorf("another object, %s: %v", name, err)
		}
	}
}

func TestResolveDistinguishesMissingFromDenied(t *testing.T) {
	bucket, detail := stored(t, event)
	bucket.MakeBucket("claims")
	if _, err := claimcheck.Resolve(t.Context(), bucket, detail); !errors.Is(err, claimcheck.ErrGone) {
		t.Errorf("got %v", err)
	}
	bucket.DenyList = true
	if _, err := claimcheck.Resolve(t.Context(), bucket, detail); !errors.Is(err, claimcheck.ErrDenied) ||
		errors.Is(err, claimcheck.ErrGone) || !strings.HasPrefix(err.Error(), claimcheck.ErrDenied.Error()+": ") {
		t.Errorf("without s3:ListBucket: got %v", err)
	}
	if _, err := claimcheck.Resolve(t.Context(), bucket, []byte("not JSON")); err == nil {
		t.Error("a detail that is not JSON is resolved")
	}
}

// The largest source, detail-type and delivery id leave room in a request of 2 KiB.
func TestLargestReferenceFitsSmallestRequest(t *testing.T) {
	buckets := awstest.NewS3()
	bucket := strings.Repeat("b", 63) // AWS, "General purpose bucket naming rules"
	buckets.MakeBucket(bucket)
	name := strings.Repeat("A", 126) + ".B" // the longest
	id := uuid.New().String()
	raw := []byte(`{"eventName":"` + name + `","eventId":"` + id +
		`","eventTimestamp":"2026-01-31T12:00:00.123456789Z","x":"` + strings.Repeat("x", 6<<20) + `"}`)
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	detail, err := claimcheck.NewStore(buckets, bucket).Put(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	const least = 2048
	b := bus.New(nil, strings.Repeat("s", 256), least)
	if e := (bus.Event{DetailType: event.EventName, Detail: detail, DeliveryID: id}); !b.Fits(e) {
		t.Errorf("it has %d bytes", b.Size(e))
	}
}

func FuzzResolve(f *testing.F) {
	bucket, detail := stored(f, event)
	f.Add(detail)
	f.Add(event.Bytes)
	f.Add([]byte(`{"claimCheck":null}`))
	f.Add([]byte(`{"claimCheck":{"bucket":"claims","key":"","size":-1,"sha256":""}}`))
	f.Fuzz(func(t *testing.T, detail []byte) {
		got, err := claimcheck.Resolve(t.Context(), bucket, detail)
		// The result is the detail itself or the object in the bucket.
		if err == nil && !bytes.Equal(got, detail) && !bytes.Equal(got, event.Bytes) {
			t.Fatalf("%s resolves to %s", detail, got)
		}
	})
}

// The signature covers the digest of the event, over TLS and without.
func TestTheSignatureOfAnUploadCoversTheEvent(t *testing.T) {
	for name, newServer := range map[string]func(http.Handler) *httptest.Server{
		"TLS": httptest.NewTLSServer, "no TLS": httptest.NewServer,
	} {
		t.Run(name, func(t *testing.T) {
			var header http.Header
			var body []byte
			server := newServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				header = r.Header
				body, _ = io.ReadAll(r.Body)
			}))
			defer server.Close()
			client := s3.New(s3.Options{
				BaseEndpoint: &server.URL, Region: "eu-central-1", UsePathStyle: true, HTTPClient: server.Client(),
				Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
			})
			if _, err := claimcheck.NewStore(client, "claims").Put(t.Context(), event); err != nil {
				t.Fatal(err)
			}
			want := hex.EncodeToString(sum[:])
			if got := header.Get("X-Amz-Content-Sha256"); got != want || !bytes.Equal(body, event.Bytes) {
				t.Errorf("the digest of %s is %s, want %s", body, got, want)
			}
			if got := header.Get("Authorization"); !strings.Contains(got, "x-amz-content-sha256") {
				t.Errorf("the digest is not signed: %s", got)
			}
		})
	}
}

// failing answers every read with an error, or with a body that breaks off.
type failing struct {
	*awstest.S3
	err  error
	body io.Reader
}

func (f failing) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{Body: io.NopCloser(f.body)}, f.err
}

func TestResolveReturnsTheErrorOfS3(t *testing.T) {
	bucket, detail := stored(t, event)
	broken := errors.New("connection reset")
	busy := &smithy.GenericAPIError{Code: "SlowDown", Fault: smithy.FaultServer}
	for name, test := range map[string]struct {
		client failing
		want   error
	}{
		"no answer": {failing{bucket, broken, strings.NewReader("")}, broken},
		"too busy":  {failing{bucket, busy, strings.NewReader("")}, busy},
		"half an answer": {failing{bucket, nil,
			io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken))}, broken},
	} {
		got, err := claimcheck.Resolve(t.Context(), test.client, detail)
		if !errors.Is(err, test.want) || got != nil || errors.Is(err, claimcheck.ErrGone) ||
			errors.Is(err, claimcheck.ErrAltered) || errors.Is(err, claimcheck.ErrDenied) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
