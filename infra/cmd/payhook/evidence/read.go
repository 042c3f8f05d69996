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
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
)

// object is a version of an object in S3, or a file.
type object struct {
	name     string    // for people
	storedAt time.Time // as S3 says: the time of acceptance
	version  string    // why the version should not be there; "" for the only one
	deleted  bool      // it is a delete marker

	proof proof.Proof
	key   *rsa.PublicKey // that signed the record; nil for none
	err   error          // it is not a record that verifies

	lockedUntil time.Time // zero if it is not known
}

// atOnce is how many objects are read at the same time.
const atOnce = 32

// decode verifies the text of an object, and compares its name with that of the record.
func (o *object) decode(text []byte, named func(p proof.Proof) error) {
	if o.proof, o.err = proof.Decode(text); o.err == nil {
		o.key, o.err = o.proof.Verify()
	}
	if o.err == nil {
		o.err = named(o.proof)
	}
}

// section is a part of a bucket.
type section struct {
	prefix   string    // of the keys
	from, to time.Time // the first and the last hour; zero for no limit
	// What S3 stored later is not read; zero for no limit.
	storedUpTo time.Time
}

// Scan calls got for each record of a bucket after it was verified, and with an error for what is not one.
func Scan(ctx context.Context, client *s3.Client, bucket string, got func(p proof.Proof, err error)) error {
	quiet := &cli.Program{Err: io.Discard, Now: time.Now}
	return scan(ctx, quiet, client, bucket, section{}, func(o object) {
		if !o.deleted {
			got(o.proof, o.err)
		}
	})
}

// Ahead is how far a signed timestamp, and so the hour of a record, can be ahead: the longest timestampTolerance.
const Ahead = 24 * time.Hour

// ScanHours calls got for each record of the hours from and to and between them, with when S3 stored it. What
// does not verify has an error.
func ScanHours(ctx context.Context, p *cli.Program, client *s3.Client, bucket string, from, to time.Time,
	got func(p proof.Proof, storedAt time.Time, err error)) error {
	return scan(ctx, p, client, bucket, section{from: from, to: to}, func(o object) {
		if !o.deleted {
			got(o.proof, o.storedAt, o.err)
		}
	})
}

// scan calls got for each version of the objects in a section of a bucket, in the order of their keys, the latest
// version of an object first, and for each delete marker. So neither a later version nor a delete marker hides a
// record.
func scan(ctx context.Context, p *cli.Program, client *s3.Client, bucket string, in section,
	got func(object)) error {
	progress := p.Counter("record", "records")
	input, end := &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &in.prefix}, ""
	if !in.from.IsZero() {
		input.Prefix = aws.String(string(proof.Accepted) + "/")
		input.KeyMarker = aws.String(proof.Accepted.After(in.from.Truncate(time.Hour)))
		end = proof.Accepted.After(in.to.Truncate(time.Hour).Add(time.Hour))
	}
	beyond := func(v version) bool { return end != "" && v.key > end }
	var found []version
	pages := s3.NewListObjectVersionsPaginator(client, input)
	for more := true; more; {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("s3://%s/%s: %w", bucket, *input.Prefix, err)
		}
		found = append(found, versionsOf(page)...)
		more = pages.HasMorePages() && !slices.ContainsFunc(found, beyond)
		found = slices.DeleteFunc(found, beyond)
		n := len(found)
		if more { // the next page can have more versions of the last object
			n = slices.IndexFunc(found, func(v version) bool { return v.key == found[len(found)-1].key })
		}
		if n > 0 {
			if err := readAll(ctx, client, bucket, found[:n], in.storedUpTo, p.Now(), got); err != nil {
				return err
			}
			progress(n)
			found = found[n:]
		}
	}
	return nil
}

// version is a version of an object, or a delete marker.
type version struct {
	key, id string
	at      time.Time
	deleted bool
}

// versionsOf returns the versions and delete markers of a page by their keys. The versions of a key follow each
// other, the latest first (AWS, https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html).
func versionsOf(page *s3.ListObjectVersionsOutput) (all []version) {
	for _, d := range page.DeleteMarkers {
		all = append(all, version{aws.ToString(d.Key), aws.ToString(d.VersionId), aws.ToTime(d.LastModified), true})
	}
	for _, v := range page.Versions {
		all = append(all, version{aws.ToString(v.Key), aws.ToString(v.VersionId), aws.ToTime(v.LastModified), false})
	}
	slices.SortStableFunc(all, func(a, b version) int { return strings.Compare(a.key, b.key) })
	return all
}

// readAll calls got for each of some versions, which are all of their keys. It leaves out the objects that have no
// version until storedUpTo.
func readAll(ctx context.Context, client *s3.Client, bucket string, versions []version, storedUpTo, now time.Time,
	got func(object)) error {
	wanted := func(v version) bool { return !v.deleted && (storedUpTo.IsZero() || !v.at.After(storedUpTo)) }
	all, errs := make([]object, len(versions)), make([]error, len(versions))
	objects.Parallel(len(versions), atOnce, func(i int) {
		v := versions[i]
		all[i] = object{name: "s3://" + bucket + "/" + v.key + "?versionId=" + v.id, storedAt: v.at,
			deleted: v.deleted}
		if wanted(v) {
			errs[i] = all[i].read(ctx, client, bucket, v)
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	for first, last := 0, 0; first < len(versions); first = last {
		for last = first; last < len(versions) && versions[last].key == versions[first].key; last++ {
		}
		if storedUpTo.IsZero() || slices.ContainsFunc(versions[first:last], wanted) {
			judgeVersions(all[first:last], now)
			for _, o := range all[first:last] {
				got(o)
			}
		}
	}
	return nil
}

// recoverable is for how long S3 keeps a record under a delete marker: infra/payhook/buckets.go.
const recoverable = 30 * 24 * time.Hour

// judgeVersions says which versions of one object should not be there: all but the latest, and delete markers.
//
// At the end of the retention, a lifecycle rule of the bucket adds a delete marker. S3 deletes the record later, and
// then the marker (AWS, "Expiring objects" in the S3 User Guide). Such a marker is not before the end of the record's
// lock.
func judgeVersions(all []object, now time.Time) {
	records := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return o.deleted })
	later := false
	for i := range all {
		o := &all[i]
		locked := func(r object) bool { return r.lockedUntil.IsZero() || o.storedAt.Before(r.lockedUntil) }
		switch {
		case !o.deleted && later:
			o.version = "a later version of the object exists"
		case !o.deleted:
			later = true
		case len(records) == 0 && now.Sub(o.storedAt) < recoverable:
			o.version = "it is a delete marker, and there is no record"
		case slices.ContainsFunc(records, locked):
			o.version = "it is a delete marker, and the record is locked, or s3:GetObjectRetention is missing"
		}
	}
}

// read reads and verifies a version. The error is that of S3.
func (o *object) read(ctx context.Context, client *s3.Client, bucket string, v version) error {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &v.key, VersionId: &v.id,
		ChecksumMode: types.ChecksumModeEnabled},
		func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	defer out.Body.Close()
	// S3 says this to who has s3:GetObjectRetention (AWS, "HeadObject" in the S3 API reference).
	o.lockedUntil = aws.ToTime(out.ObjectLockRetainUntilDate)
	text, err := io.ReadAll(out.Body)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.decode(text, func(p proof.Proof) error { return p.CheckName(v.key) })
	if err != nil { // the SDK has compared the checksum
		o.err = fmt.Errorf("%w: %w", proof.ErrDamaged, err)
	}
	return nil
}

// files calls got for each file of a record in a folder and below.
func files(ctx context.Context, p *cli.Program, folder string, got func(object)) error {
	progress := p.Counter("record", "records")
	var names []string
	if err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(name) == ".json" {
			names = append(names, name)
		}
		return err
	}); err != nil {
		return err
	}
	for names := range slices.Chunk(names, 1000) {
		all := make([]object, len(names))
		objects.Parallel(len(names), atOnce, func(i int) {
			text, err := os.ReadFile(names[i])
			if all[i] = (object{name: names[i], err: err}); err == nil && ctx.Err() == nil {
				all[i].decode(text, func(p proof.Proof) error {
					if path.Base(p.Name()) != filepath.Base(names[i]) {
						return fmt.Errorf("%w: the name is that of another record", proof.ErrDamaged)
					}
					return nil
				})
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, o := range all {
			got(o)
		}
		progress(len(names))
	}
	return nil
}
