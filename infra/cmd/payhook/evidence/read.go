package evidence

import (
	"context"
	"crypto/rsa"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"payhook.example/infra/cmd/payhook/cli"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/keys"
	"payhook.example/shared/parallel"
)

// object is a version of an object in S3, or a file.
type object struct {
	name     string    // for people
	storedAt time.Time // as S3 says: the time of acceptance
	version  string    // why the version should not be there; "" for the only one
	deleted  bool      // it is a delete marker

	record records.Record
	key    *rsa.PublicKey // that signed the record; nil for none
	err    error          // it is not a record that verifies
}

// atOnce is how many objects are read at the same time.
const atOnce = 32

// decode verifies the text of an object.
func (o *object) decode(text []byte) {
	if o.record, o.err = records.Decode(text); o.err == nil {
		o.err = o.record.Verify()
	}
	if o.err == nil && o.record.HasSignature() {
		o.key, o.err = keys.ParseJWK(o.record.JWK, o.record.KeyID)
	}
}

// Scan calls got for each record of a bucket after it was verified, and with an error for what is not one.
func Scan(ctx context.Context, client *s3.Client, bucket string, got func(r records.Record, err error)) error {
	quiet := &cli.Program{Err: io.Discard, Now: time.Now}
	return scan(ctx, quiet, client, bucket, "", func(o object) { got(o.record, o.err) })
}

// Ahead is how far a signed timestamp, and so the hour of a record, can be ahead: the longest timestampTolerance.
const Ahead = 24 * time.Hour

// ScanHours calls got for each record of the hours from and to and between them, with when S3 stored it. What
// does not verify has an error.
func ScanHours(ctx context.Context, p *cli.Program, client *s3.Client, bucket string, from, to time.Time,
	got func(r records.Record, storedAt time.Time, err error)) error {
	return scanHours(ctx, p, client, bucket, from, to, func(o object) {
		if !o.deleted {
			got(o.record, o.storedAt, o.err)
		}
	})
}

func scanHours(ctx context.Context, p *cli.Program, client *s3.Client, bucket string, from, to time.Time,
	got func(object)) error {
	for at := from.UTC().Truncate(time.Hour); !at.After(to); at = at.Add(time.Hour) {
		if err := scan(ctx, p, client, bucket, records.Prefix+path.Dir(records.Path(at))+"/", got); err != nil {
			return err
		}
	}
	return nil
}

// scan calls got for each version of the objects of a bucket whose keys have a prefix, in the order of S3,
// and for each delete marker. So neither a later version nor a delete marker hides a record.
func scan(ctx context.Context, p *cli.Program, client *s3.Client, bucket, prefix string, got func(object)) error {
	progress := newProgress(p)
	pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &prefix})
	previous := ""
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("s3://%s/%s: %w", bucket, prefix, err)
		}
		for _, d := range page.DeleteMarkers {
			got(object{name: nameOf(bucket, d.Key, d.VersionId), deleted: true, version: "it is a delete marker"})
		}
		objects, errs := make([]object, len(page.Versions)), make([]error, len(page.Versions))
		parallel.Each(len(objects), atOnce, func(i int) {
			objects[i], errs[i] = read(ctx, client, bucket, page.Versions[i])
		})
		for i, o := range objects {
			if errs[i] != nil {
				return errs[i]
			}
			// The versions of a key follow each other, the latest first (AWS,
			// https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html).
			if key := *page.Versions[i].Key; key == previous {
				o.version = "a later version of the object exists"
			} else {
				previous = key
			}
			got(o)
		}
		progress(len(objects))
	}
	return nil
}

func nameOf(bucket string, key, version *string) string {
	return "s3://" + bucket + "/" + aws.ToString(key) + "?versionId=" + aws.ToString(version)
}

// read reads and verifies a version of an object. The error is that of S3.
func read(ctx context.Context, client *s3.Client, bucket string, v types.ObjectVersion) (object, error) {
	o := object{name: nameOf(bucket, v.Key, v.VersionId), storedAt: aws.ToTime(v.LastModified)}
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId,
		ChecksumMode: types.ChecksumModeEnabled},
		func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
	if err != nil {
		return o, fmt.Errorf("%s: %w", o.name, err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	o.decode(text)
	switch {
	case err != nil: // the SDK has compared the checksum
		o.err = fmt.Errorf("%w: %w", records.ErrDamaged, err)
	case o.err == nil && o.record.Key() != *v.Key:
		o.err = fmt.Errorf("%w: the name is that of another record", records.ErrDamaged)
	}
	return o, nil
}

// files calls got for each file in a folder and below.
func files(ctx context.Context, p *cli.Program, folder string, got func(object)) error {
	progress := newProgress(p)
	var names []string
	if err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		return err
	}
	for names := range slices.Chunk(names, 1000) {
		objects := make([]object, len(names))
		parallel.Each(len(names), atOnce, func(i int) {
			text, err := os.ReadFile(names[i])
			if objects[i] = (object{name: names[i], err: err}); err == nil && ctx.Err() == nil {
				objects[i].decode(text)
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, o := range objects {
			got(o)
		}
		progress(len(names))
	}
	return nil
}

// newProgress returns a function that counts records, and writes their number every three seconds.
func newProgress(p *cli.Program) func(more int) {
	n, said := 0, p.Now()
	return func(more int) {
		n += more
		if now := p.Now(); now.Sub(said) > 3*time.Second {
			said = now
			fmt.Fprintln(p.Err, cli.Counted(n, "record", "records"), "read")
		}
	}
}
