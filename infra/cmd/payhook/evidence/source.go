package evidence

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/parallel"
)

// item is a record, or an error in a file.
type item struct {
	at     string // FILE:LINE; of a record in parts, that of the part that was read last
	line   []byte // of the record
	record records.Record
	err    error
}

// maxBatch is the size of a batch, in bytes.
const maxBatch = 8 << 20

// pass reads and verifies the records of files and objects once, batch by batch.
type pass struct {
	*cli.Program
	target *deployment.Target
	client *s3.Client   // nil: that of target
	only   string       // verifies only lines with this text in lower case
	keys   map[jwk]bool // the JWKs must be among them; nil: they are not compared
	got    func(*item)  // is called for each item, in their order

	joiner  records.Joiner
	batch   []item
	size    int       // of the batch, in bytes
	records int       // that were read
	said    time.Time // when the progress was written
}

// Scan calls got for each record in a bucket after it was verified, with its line, and for each error.
func Scan(ctx context.Context, client *s3.Client, bucket string,
	got func(line []byte, r records.Record, err error)) error {
	p := &pass{Program: &cli.Program{Err: io.Discard, Now: time.Now}, client: client,
		got: func(i *item) { got(i.line, i.record, i.err) }}
	return p.run(ctx, []string{"s3://" + bucket})
}

func (p *pass) run(ctx context.Context, names []string) error {
	p.said = p.Now()
	for _, name := range names {
		if bucket, isObject := strings.CutPrefix(name, "s3://"); isObject {
			if err := p.objects(ctx, bucket); err != nil {
				return cli.Unreachable(err)
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := p.read(ctx, name, f); err != nil {
			return err
		}
	}
	for _, at := range p.joiner.Incomplete() {
		p.add(item{at: at, err: errors.New("parts of the record are missing: they are in a file that was not read, " +
			"or were removed, or the delivery was answered 503")})
	}
	p.flush()
	return nil
}

// objects reads all versions of the objects with a prefix, so that a later version or a delete
// marker hides no record. name is BUCKET/PREFIX.
func (p *pass) objects(ctx context.Context, name string) error {
	if p.client == nil { // no stack is needed
		if err := p.Choose(ctx, p.target); err != nil {
			return err
		}
		d, _, err := deployment.Find(ctx, *p.target)
		if err != nil {
			return err
		}
		p.client = d.S3()
	}
	bucket, prefix, _ := strings.Cut(name, "/")
	pages := s3.NewListObjectVersionsPaginator(p.client, &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("s3://%s: %w", name, err)
		}
		for _, v := range page.Versions {
			if err := p.object(ctx, bucket, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) object(ctx context.Context, bucket string, v types.ObjectVersion) error {
	name := "s3://" + bucket + "/" + *v.Key + "?versionId=" + *v.VersionId
	out, err := p.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId},
		func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return p.read(ctx, name, out.Body)
}

// read reads lines, compressed with gzip or not. An error in them becomes an item.
func (p *pass) read(ctx context.Context, name string, from io.ReadCloser) error {
	defer from.Close()
	buffered := bufio.NewReaderSize(from, 1<<16)
	text, err := io.Reader(buffered), error(nil)
	if begin, _ := buffered.Peek(2); string(begin) == "\x1f\x8b" {
		text, err = gzip.NewReader(buffered)
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 32<<20) // find writes a large record as one line, of less than 10 MiB
	n := 1
	at := func() string { return fmt.Sprintf("%s:%d", name, n) }
	for ; err == nil && ctx.Err() == nil && lines.Scan(); n++ {
		p.joiner.At = at()
		if line, err := p.joiner.Join(lines.Bytes()); line != nil || err != nil {
			p.add(item{at: at(), line: bytes.Clone(line), err: err})
		}
	}
	if err = cmp.Or(err, lines.Err()); err != nil {
		p.add(item{at: at(), err: fmt.Errorf("the rest of the file: %w", err)})
	}
	return ctx.Err()
}

func (p *pass) add(i item) {
	p.records++
	p.batch = append(p.batch, i)
	p.size += len(i.line) + 1<<10
	if p.size > maxBatch {
		p.flush()
	}
	if now := p.Now(); now.Sub(p.said) > 3*time.Second {
		p.said = now
		fmt.Fprintln(p.Err, cli.Counted(p.records, "record", "records"))
	}
}

// flush verifies the batch on all cores.
func (p *pass) flush() {
	parallel.Each(len(p.batch), runtime.GOMAXPROCS(0), func(i int) { p.verify(&p.batch[i]) })
	for i := range p.batch {
		p.got(&p.batch[i])
	}
	p.batch, p.size = nil, 0
}

// verify verifies a record.
func (p *pass) verify(i *item) {
	if i.err != nil || !bytes.Contains(bytes.ToLower(i.line), []byte(p.only)) {
		return
	}
	if i.record, i.err = records.Decode(i.line); i.err == nil {
		i.err = i.record.Verify()
	}
	if i.err == nil && p.keys != nil && i.record.HasSignature() {
		var key jwk
		if err := json.Unmarshal(i.record.JWK, &key); err != nil || !p.keys[key] {
			i.err = fmt.Errorf("the JWK of the key %s is not in --keys", i.record.KeyID)
		}
	}
}
