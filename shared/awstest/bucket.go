package awstest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/objects"
)

// Bucket answers the requests of S3, with path-style URLs, for one bucket whose objects are locked: a put without a
// checksum is refused (AWS, https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html).
type Bucket struct{ objects.Memory }

func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var code string
	var answer []byte
	switch {
	case r.Method == http.MethodPut:
		code = b.put(r, key)
	case key == "":
		answer = b.list(r)
	default:
		var err error
		if answer, err = b.Get(r.Context(), key, math.MaxInt); err != nil {
			code = "NoSuchKey"
		}
	}
	if code != "" {
		status := map[string]int{"NoSuchKey": http.StatusNotFound, "PreconditionFailed": http.StatusPreconditionFailed}
		w.WriteHeader(cmp.Or(status[code], http.StatusBadRequest))
		answer = fmt.Appendf(nil, "<Error><Code>%s</Code><Message>of arn:aws:s3:::bucket</Message></Error>", code)
	}
	_, _ = w.Write(answer)
}

// put stores the object of a request. It returns the code of an error; "" for none.
func (b *Bucket) put(r *http.Request, key string) (code string) {
	body, err := io.ReadAll(r.Body)
	sum := sha256.Sum256(body)
	switch checksum := r.Header.Get("X-Amz-Checksum-Sha256"); {
	case err != nil || checksum == "":
		return "InvalidRequest"
	case checksum != base64.StdEncoding.EncodeToString(sum[:]):
		return "BadDigest"
	case r.Header.Get("If-None-Match") != "*":
		_ = b.Put(r.Context(), key, body)
	default:
		if existed, _ := b.Create(r.Context(), key, body); existed {
			return "PreconditionFailed"
		}
	}
	return ""
}

// list returns the page of objects that a request asks for.
func (b *Bucket) list(r *http.Request) []byte {
	type content struct {
		Key      string
		Size     int
		StoredAt time.Time `xml:"LastModified"`
	}
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("max-keys"))
	after := max(q.Get("continuation-token"), q.Get("start-after"))
	found, more, _ := b.List(r.Context(), q.Get("prefix"), after, limit)
	page.IsTruncated = more
	for _, o := range found {
		page.Contents, page.NextContinuationToken = append(page.Contents, content(o)), o.Key
	}
	answer, _ := xml.Marshal(page)
	return answer
}
