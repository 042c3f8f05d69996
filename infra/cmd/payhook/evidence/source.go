package evidence

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

// Sizes in bytes.
const (
	maxLine     = 32 << 20 // a record that was put together has less than 10 MiB
	maxBatch    = 8 << 20
	smallObject = 1 << 20
	fetched     = 16 // how many small objects are fetched at the same time
)

// scan reads files and objects once, batch by batch.
type scan struct {
	*options
	look func(*item) // is called for each record, on all cores
	got  func(*item) // is called after that for each item, in their order

	joiner                records.Joiner
	batch                 []item
	size                  int // of the batch, in bytes
	records, lines, files int
	hidden                int // objects with a later version or a delete marker
	begun, said           time.Time
}

// Scan calls got for each record in a bucket after it was verified, with its line, and for each error.
func Scan(ctx context.Context, client *s3.Client, bucket string,
	got func(line []byte, r records.Record, err error)) error {
	s := &scan{options: &options{Program: &cli.Program{Err: io.Discard, Now: time.Now}, s3: client}, look: verify,
		got: func(i *item) { got(i.line, i.record, i.err) }}
	return s.run(ctx, []string{"s3://" + bucket})
}

// verify verifies a record.
func verify(i *item) {
	if i.record, i.err = records.Decode(i.line); i.err == nil {
		i.err = i.record.Verify()
	}
}

func (s *scan) run(ctx context.Context, names []string) error {
	s.begun = s.Now()
	s.said = s.begun
	for _, name := range names {
		var err error
		if name == "-" {
			err = s.read(ctx, name, s.In)
		} else if bucket, isObject := strings.CutPrefix(name, "s3://"); isObject {
			err = cli.Unreachable(s.objects(ctx, bucket))
		} else {
			err = walk(name, func(path string, f *os.File) error { return s.read(ctx, path, f) })
		}
		if err != nil {
			return err
		}
	}
	for _, at := range s.joiner.Incomplete() {
		s.batch = append(s.batch, item{at: at, err: errors.New("parts of the record are missing: they are in a file " +
			"that was not read, or were removed, or the delivery was answered 503")})
	}
	s.flush()
	s.say()
	return nil
}

// walk opens a file, or the files in a folder and below it.
func walk(name string, do func(path string, f *os.File) error) error {
	return filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return do(path, f)
	})
}

// objects reads all versions of the objects with a prefix, so that a later version or a delete
// marker hides no record. name is BUCKET/PREFIX.
func (s *scan) objects(ctx context.Context, name string) error {
	client, err := s.client(ctx)
	if err != nil {
		return err
	}
	bucket, prefix, _ := strings.Cut(name, "/")
	pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("s3://%s: %w", name, err)
		}
		for chunk := range slices.Chunk(page.Versions, fetched) {
			bodies, errs := make([]io.ReadCloser, len(chunk)), make([]error, len(chunk))
			parallel.Each(len(chunk), fetched, func(i int) { bodies[i], errs[i] = get(ctx, client, bucket, chunk[i]) })
			for i, v := range chunk {
				name := "s3://" + bucket + "/" + aws.ToString(v.Key)
				if !aws.ToBool(v.IsLatest) {
					s.hidden++
					name += "?versionId=" + aws.ToString(v.VersionId)
				}
				if errs[i] == nil {
					errs[i] = s.read(ctx, name, bodies[i])
					bodies[i].Close()
				}
				if errs[i] != nil {
					return fmt.Errorf("%s: %w", name, errs[i])
				}
			}
		}
	}
	return nil
}

// client returns the client for buckets. In AWS, it needs no stack.
func (o *options) client(ctx context.Context) (*s3.Client, error) {
	if o.s3 != nil {
		return o.s3, nil
	}
	if err := o.Choose(ctx, o.target); err != nil {
		return nil, err
	}
	d := &deployment.Deployment{}
	var err error
	if o.target.Local {
		d, err = deployment.Connect(ctx, *o.target)
	} else {
		d.AWS, err = deployment.Config(ctx, *o.target)
	}
	if err != nil {
		return nil, err
	}
	o.s3 = d.S3()
	return o.s3, nil
}

// get opens a version of an object. It reads a small one whole: Firehose writes an object every 15
// minutes, so most are small.
func get(ctx context.Context, client *s3.Client, bucket string, v types.ObjectVersion) (io.ReadCloser, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId},
		func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
	if err != nil {
		return nil, err
	}
	if aws.ToInt64(v.Size) > smallObject {
		return out.Body, nil
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	return io.NopCloser(bytes.NewReader(text)), err
}

// read reads lines, compressed with gzip or not. An error in them becomes an item.
func (s *scan) read(ctx context.Context, name string, from io.Reader) error {
	s.files++
	buffered := bufio.NewReaderSize(from, 1<<16)
	text, err := io.Reader(buffered), error(nil)
	if begin, _ := buffered.Peek(2); string(begin) == "\x1f\x8b" {
		text, err = gzip.NewReader(buffered)
	}
	at := func(n int) string { return fmt.Sprintf("%s:%d", name, n) }
	n := 1
	if err == nil {
		lines := bufio.NewScanner(text)
		lines.Buffer(nil, maxLine)
		for ; ctx.Err() == nil && lines.Scan(); n++ {
			s.lines++
			s.joiner.At = at(n)
			if joined, err := s.joiner.Join(lines.Bytes()); joined != nil || err != nil {
				s.add(item{at: at(n), line: bytes.Clone(joined), err: err})
			}
		}
		err = lines.Err()
	}
	if err != nil {
		s.add(item{at: at(n), err: fmt.Errorf("the rest of the file: %w", err)})
	}
	return ctx.Err()
}

func (s *scan) add(i item) {
	s.batch = append(s.batch, i)
	s.size += len(i.line) + 1<<10
	late := s.Now().Sub(s.said) > 3*time.Second
	if late || s.size > maxBatch {
		s.flush()
	}
	if late {
		s.say()
	}
}

// flush looks at the batch.
func (s *scan) flush() {
	parallel.Each(len(s.batch), runtime.GOMAXPROCS(0), func(i int) {
		if s.batch[i].err == nil {
			s.look(&s.batch[i])
		}
	})
	for i := range s.batch {
		if s.batch[i].line != nil {
			s.records++
		}
		s.got(&s.batch[i])
	}
	clear(s.batch) // what got keeps is copied
	s.batch, s.size = s.batch[:0], 0
}

// say writes the progress.
func (s *scan) say() {
	s.said = s.Now()
	took := s.said.Sub(s.begun)
	fmt.Fprintf(s.Err, "%s in %s, %s, %.0f a second\n", cli.Counted(s.records, "record", "records"),
		cli.Counted(s.files, "file", "files"), cli.Readable(took), float64(s.records)/took.Seconds())
}
