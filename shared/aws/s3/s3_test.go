package s3_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
)

// request is a request that a server got.
type request struct {
	*http.Request
	body string
}

// The answers that are no body.
const (
	cutOff     = ""  // the connection ends instead of an answer
	half       = "{" // it ends in the middle of the answer
	exists     = "Error 412 PreconditionFailed"
	inProgress = "Error 409 ConditionalRequestConflict"
	down       = "Error 500 InternalError"
	denied     = "Error 403 AccessDenied"
)

// answering returns a client, that of the functions, whose requests get these answers: a body, or the status and code
// of an error. It collects the requests.
func answering(t *testing.T, newServer func(http.Handler) *httptest.Server, answers ...string) (*s3.Client,
	*[]request) {
	t.Helper()
	var requests []request
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, request{r, string(body)})
		if len(requests) > len(answers) {
			t.Errorf("%s %s has no answer", r.Method, r.URL)
			return
		}
		answer := answers[len(requests)-1]
		var status int
		var code string
		switch n, _ := fmt.Sscanf(answer, "Error %d %s", &status, &code); {
		case answer == cutOff:
			panic(http.ErrAbortHandler)
		case n == 2:
			w.WriteHeader(status)
			answer = "<Error><Code>" + code + "</Code><Message>of arn:aws:s3:::bucket</Message></Error>"
		case answer == half:
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(func() {
		server.Close()
		if len(requests) != len(answers) {
			t.Errorf("%d requests got %d answers", len(requests), len(answers))
		}
	})
	cfg := awstest.Config(strings.Replace(server.URL, "127.0.0.1", "localhost", 1))
	if cfg.HTTPClient = client.NewConnections(1).Client(); server.TLS != nil {
		cfg.HTTPClient, cfg.BaseEndpoint = server.Client(), &server.URL
	}
	return s3.NewClient(cfg), &requests
}

// text returns the text of an error, and "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCreateHandlesTheAnswersOfS3(t *testing.T) {
	for name, test := range map[string]struct {
		answers []string
		existed bool
		err     string
	}{
		"written":                         {answers: []string{"ok"}},
		"exists already":                  {answers: []string{exists}, existed: true},
		"another write is in progress":    {answers: []string{inProgress, "ok"}},
		"the other write was first":       {answers: []string{inProgress, exists}},
		"its own write without an answer": {answers: []string{down, exists}},
		"denied":                          {answers: []string{denied}, err: "S3 PutObject: AccessDenied"},
		"down":                            {answers: []string{down, down, down}, err: "S3 PutObject: InternalError"},
	} {
		t.Run(name, func(t *testing.T) {
			api, requests := answering(t, httptest.NewServer, test.answers...)
			existed, err := s3.NewBucket(api, "bucket").Create(t.Context(), "a/b", []byte("body"))
			if text := text(err); existed != test.existed || text != test.err {
				t.Errorf("%t, %s", existed, text)
			}
			for _, r := range *requests {
				if r.Header.Get("If-None-Match") != "*" || r.URL.Path != "/bucket/a/b" || r.body != "body" {
					t.Errorf("%s %v %s", r.URL, r.Header, r.body)
				}
			}
		})
	}
}

// S3 has stored the object, and the connection breaks before its answer. The connection was open before.
func TestAFirstWriteIsReportedAsFirstWhenItsAnswerIsLost(t *testing.T) {
	api, _ := answering(t, httptest.NewServer, "ok", cutOff, exists)
	for _, key := range []string{"one", "other"} {
		if existed, err := s3.NewBucket(api, "bucket").Create(t.Context(), key, nil); existed || err != nil {
			t.Errorf("%s: %t, %v", key, existed, err)
		}
	}
}

// A locked bucket refuses a write without a checksum, and the signature covers the digest of the body, over TLS and
// without.
func TestAWriteHasAChecksumAndASignatureOfItsBody(t *testing.T) {
	for _, newServer := range []func(http.Handler) *httptest.Server{httptest.NewTLSServer, httptest.NewServer} {
		for _, body := range []string{"", "body"} {
			api, requests := answering(t, newServer, "ok", "ok")
			bucket := s3.NewBucket(api, "bucket")
			_, err := bucket.Create(t.Context(), "key", []byte(body))
			if err = errors.Join(err, bucket.Put(t.Context(), "key", []byte(body))); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(body))
			for n, r := range *requests {
				want := map[string]string{
					"X-Amz-Content-Sha256":  hex.EncodeToString(sum[:]),
					"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:]),
					"Content-Type":          "application/json",
					"If-None-Match":         []string{"*", ""}[n],
				}
				for name, want := range want {
					if got := r.Header.Get(name); got != want {
						t.Errorf("request %d: %s: %s, want %s", n, name, got, want)
					}
				}
				if signed := r.Header.Get("Authorization"); !strings.Contains(signed, "x-amz-content-sha256") ||
					r.body != body {
					t.Errorf("request %d: %s, signed %s", n, r.body, signed)
				}
			}
		}
	}
}

func TestGetReadsALittleMoreThanTheLimit(t *testing.T) {
	for limit, want := range map[int]string{0: "b", 2: "bod", 3: "body", 4: "body", math.MaxInt: "body"} {
		api, requests := answering(t, httptest.NewServer, "body")
		got, err := s3.NewReader(api, "bucket").Get(t.Context(), "a b/ü", limit)
		if err != nil || string(got) != want || (*requests)[0].URL.Path != "/bucket/a b/ü" {
			t.Errorf("%d: %s, %v", limit, got, err)
		}
	}
}

// A consumer distinguishes an event that is gone from a permission that is missing.
func TestResolveReturnsTheEventOrTheErrorOfS3(t *testing.T) {
	raw := payment.RawEvent{EventID: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60", Bytes: []byte("{}")}
	detail, err := bus.NewLargeEvents(&objects.Memory{}, "large-events").Put(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		answers []string
		want    error
		err     string
	}{
		"stored":  {[]string{"{}"}, nil, ""},
		"altered": {[]string{"{ }"}, bus.ErrAltered, bus.ErrAltered.Error()},
		"gone":    {[]string{"Error 404 NoSuchKey"}, bus.ErrGone, bus.ErrGone.Error()},
		"denied": {[]string{denied}, bus.ErrDenied,
			"claim check: get: " + bus.ErrDenied.Error() + ": S3 GetObject: AccessDenied"},
		"down":           {[]string{down, down, down}, nil, "claim check: get: S3 GetObject: InternalError"},
		"half an answer": {[]string{half}, io.ErrUnexpectedEOF, "claim check: get: S3 GetObject: no answer"},
	} {
		api, requests := answering(t, httptest.NewServer, test.answers...)
		got, err := s3.Resolve(t.Context(), api, detail)
		if (string(got) == "{}") != (test.err == "") || text(err) != test.err ||
			test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if got := (*requests)[0].URL.Path; !strings.HasPrefix(got, "/large-events/events/"+raw.EventID+"/") {
			t.Errorf("%s: it requests %s", name, got)
		}
	}
}

func TestListFollowsEmptyPagesAndHasTheTimes(t *testing.T) {
	const start, end = "<ListBucketResult><IsTruncated>true</IsTruncated>" +
		"<NextContinuationToken>next</NextContinuationToken>", "</ListBucketResult>"
	api, requests := answering(t, httptest.NewServer, start+end, start+"<Contents><Key>a/b</Key><Size>7</Size>"+
		"<LastModified>2026-01-31T12:00:00.000Z</LastModified></Contents>"+end, denied)
	list := func() ([]objects.Object, bool, error) {
		return s3.NewBucket(api, "bucket").List(t.Context(), "a/", "a/a", 3)
	}
	page, more, err := list()
	want := []objects.Object{{Key: "a/b", Size: 7, StoredAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}}
	if err != nil || !more || cmp.Diff(want, page) != "" {
		t.Errorf("%v, %t, %v", page, more, err)
	}
	for n, r := range *requests {
		q := r.URL.Query()
		if token := q.Get("continuation-token"); r.URL.Path != "/bucket" && r.URL.Path != "/bucket/" ||
			q.Get("prefix") != "a/" || q.Get("start-after") != "a/a" || q.Get("max-keys") != "3" ||
			q.Get("encoding-type") != "url" ||
			token != []string{"", "next"}[n] {
			t.Errorf("request %d: %s", n, r.URL)
		}
	}
	if _, _, err := list(); text(err) != "S3 ListObjectsV2: AccessDenied" {
		t.Errorf("denied: %v", err)
	}
}

// XML has no character U+0001, not even as a reference, so an answer with one could not be read.
func TestListReadsKeysThatXMLCannotHave(t *testing.T) {
	const keys = "<Contents><Key>a/%01+%2B%C3%BC</Key></Contents><Contents><Key>a/b</Key></Contents></ListBucketResult>"
	for start, want := range map[string]string{
		"<ListBucketResult><EncodingType>url</EncodingType>": "a/\x01 +ü",
		"<ListBucketResult>": "a/%01+%2B%C3%BC", // it is not encoded
	} {
		api, _ := answering(t, httptest.NewServer, start+keys)
		page, _, err := s3.NewBucket(api, "bucket").List(t.Context(), "a/", "", 3)
		if err != nil || len(page) != 2 || page[0].Key != want || page[1].Key != "a/b" {
			t.Errorf("%+v, %v", page, err)
		}
	}
}
