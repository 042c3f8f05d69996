package commands

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/spf13/pflag"

	"payhook.example/infra/cmd/payhook/cli"
	adapters "payhook.example/shared/aws/s3"
	"payhook.example/shared/calls"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/proof"
)

// Object is a version of an object in S3, or a file.
type Object struct {
	Name     string    // for people, without anything that has not the form of a proof's name
	StoredAt time.Time // as S3 says: the time of acceptance
	Deleted  bool      // it is a delete marker, without a proof
	Proof    proof.Proof
	Err      error // it is not a proof that verifies

	signer      *rsa.PublicKey // of the proof; nil for none
	unexpected  string         // why the version should not be there; "" for the only one
	key, id     string         // of the version in S3
	lockedUntil time.Time      // zero if it is not known
}

// verify verifies the text of an object, and compares its key with the name of the proof.
func (o *Object) verify(text []byte, key string) {
	if o.Proof, o.Err = proof.Decode(text); o.Err == nil {
		o.signer, o.Err = o.Proof.Verify()
	}
	if e, ok := errors.AsType[*clientcert.Error](o.Err); ok {
		o.Err = &clientcert.Error{Reason: e.Reason} // the detail has texts of the certificate
	}
	if o.Err == nil {
		o.Err = o.Proof.CheckName(key)
	}
}

// Section is a part of a bucket.
type Section struct {
	Prefix   string    // of the keys
	From, To time.Time // the first and the last hour; zero for all

	storedUpTo time.Time // what S3 stored later is not read; zero for no limit
}

// ahead is how far a signed timestamp, and so the hour of a proof, can be ahead: the longest timestampTolerance.
const ahead = 24 * time.Hour

const hourFormat = "2006-01-02T15"

// Flags adds the flags --from and --to.
func (s *Section) Flags(f *pflag.FlagSet) {
	// A day means its hour that begins so long after it.
	hour := func(to *time.Time, ofDay time.Duration) func(string) error {
		return func(text string) (err error) {
			if *to, err = time.Parse(hourFormat, text); err == nil {
				return nil
			}
			*to, err = time.Parse(time.DateOnly, text)
			if *to = to.Add(ofDay); err != nil {
				err = errors.New("must be as 2026-01-31T22 or 2026-01-31")
			}
			return err
		}
	}
	f.Func("from", "the first `hour` of the proofs (UTC), as in 2026-01-31T22, or the first day", hour(&s.From, 0))
	f.Func("to", "the last `hour` or day (default: now)", hour(&s.To, 23*time.Hour))
}

// Check returns an error of usage if the flags select no time. Without --to, it sets To.
func (s *Section) Check(now time.Time) error {
	switch {
	case s.From.IsZero() && !s.To.IsZero():
		return cli.Usage("--to needs --from")
	case s.To.IsZero() && !s.From.IsZero():
		s.To = now.Add(ahead)
	case s.To.Before(s.From):
		return cli.Usage("--from is after --to")
	}
	return nil
}

func (s Section) String() string {
	text := "from " + s.From.UTC().Format(hourFormat) + " to " + s.To.UTC().Format(hourFormat)
	if !s.storedUpTo.IsZero() {
		text += ", stored until " + s.storedUpTo.UTC().Format(hourFormat+":04")
	}
	return text
}

// Scan calls got for each version of the objects in a section of a bucket, in the order of their keys, the latest
// version of an object first, and for each delete marker. So neither a later version nor a delete marker hides a
// proof.
func Scan(ctx context.Context, client *s3.Client, bucket string, in Section, got func(Object)) error {
	folders := []string{in.Prefix}
	if !in.From.IsZero() { // each setting of evidence that there was has a folder
		folders = nil
		for page, err := range pages(ctx, client, &s3.ListObjectVersionsInput{Bucket: &bucket,
			Prefix: aws.String(string(proof.Accepted) + "/"), Delimiter: aws.String("/")}) {
			if err != nil {
				return err
			}
			for _, folder := range page.CommonPrefixes {
				adapters.DecodeKeys(page.EncodingType, folder.Prefix)
				folders = append(folders, aws.ToString(folder.Prefix))
			}
		}
	}
	for _, folder := range folders {
		if err := in.scan(ctx, client, bucket, folder, got); err != nil {
			return err
		}
	}
	return nil
}

// readAtOnce is how many versions are read before they are judged, and more if their key has more.
const readAtOnce = 128

// scan is Scan of the keys below a folder.
func (s Section) scan(ctx context.Context, client *s3.Client, bucket, folder string, got func(Object)) error {
	input, end := &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &folder}, ""
	if !s.From.IsZero() {
		input.KeyMarker = aws.String(proof.After(folder, s.From.Truncate(time.Hour)))
		end = proof.After(folder, s.To.Truncate(time.Hour).Add(time.Hour))
	}
	var versions []Object // all of their keys
	for page, err := range pages(ctx, client, input) {
		if err != nil {
			return err
		}
		for _, o := range versionsOf(page, bucket) {
			n := len(versions)
			if end != "" && o.key > end {
				return s.readAll(ctx, client, bucket, versions, got)
			}
			if n >= readAtOnce && versions[n-1].key != o.key {
				if err := s.readAll(ctx, client, bucket, versions, got); err != nil {
					return err
				}
				versions = nil
			}
			versions = append(versions, o)
		}
	}
	return s.readAll(ctx, client, bucket, versions, got)
}

// pages yields the pages of a list of versions, in which keys are encoded. Without a page, there is an error, and it is
// the last one.
func pages(ctx context.Context, client *s3.Client,
	in *s3.ListObjectVersionsInput) iter.Seq2[*s3.ListObjectVersionsOutput, error] {
	in.EncodingType = types.EncodingTypeUrl
	return func(yield func(*s3.ListObjectVersionsOutput, error) bool) {
		for more := true; more; {
			page, err := client.ListObjectVersions(ctx, in)
			if err != nil {
				yield(nil, fmt.Errorf("s3://%s: %w", *in.Bucket, err))
				return
			}
			adapters.DecodeKeys(page.EncodingType, page.NextKeyMarker)
			in.KeyMarker, in.VersionIdMarker = page.NextKeyMarker, page.NextVersionIdMarker
			more = yield(page, nil) && aws.ToBool(page.IsTruncated)
		}
	}
}

// versionsOf returns the versions and delete markers of a page by their keys. The versions of a key follow each
// other, the latest first (AWS, https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html).
func versionsOf(page *s3.ListObjectVersionsOutput, bucket string) (all []Object) {
	add := func(key, id *string, at *time.Time, deleted bool) {
		adapters.DecodeKeys(page.EncodingType, key)
		o := Object{key: aws.ToString(key), id: aws.ToString(id), StoredAt: aws.ToTime(at), Deleted: deleted}
		o.Name = "s3://" + bucket + "/" + printable(o.key) + "?versionId=" + o.id
		all = append(all, o)
	}
	for _, d := range page.DeleteMarkers {
		add(d.Key, d.VersionId, d.LastModified, true)
	}
	for _, v := range page.Versions {
		add(v.Key, v.VersionId, v.LastModified, false)
	}
	slices.SortStableFunc(all, func(a, b Object) int { return strings.Compare(a.key, b.key) })
	return all
}

// printable returns a key if it is the name of a proof, and otherwise "": it can be made for a terminal or a shell.
func printable(key string) string {
	if _, err := proof.ParseName(key); err != nil {
		return ""
	}
	return key
}

// readAll calls got for each of some versions, which are all of their keys. It leaves out the objects that have no
// version until storedUpTo.
func (s Section) readAll(ctx context.Context, client *s3.Client, bucket string, versions []Object,
	got func(Object)) error {
	all := s.storedUpTo.IsZero()
	wanted := func(o Object) bool { return !o.Deleted && (all || !o.StoredAt.After(s.storedUpTo)) }
	errs := make([]error, len(versions))
	calls.Parallel(len(versions), 32, func(i int) {
		if wanted(versions[i]) {
			errs[i] = versions[i].read(ctx, client, bucket)
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	for len(versions) > 0 {
		n := 1
		for n < len(versions) && versions[n].key == versions[0].key {
			n++
		}
		if all || slices.ContainsFunc(versions[:n], wanted) {
			judge(versions[:n], time.Now())
			for _, o := range versions[:n] {
				got(o)
			}
		}
		versions = versions[n:]
	}
	return nil
}

// recoverable is for how long S3 keeps a proof under a delete marker: infra/payhook/stores.go.
const recoverable = 30 * 24 * time.Hour

// judge says of each version of one object, the latest first, why it should not be there. All but the latest should
// not, and neither should delete markers.
//
// At the end of the retention, a lifecycle rule of the bucket adds a delete marker. S3 deletes the proof later, and
// then the marker (AWS, "Expiring objects" in the S3 User Guide). Such a marker is not before the end of the proof's
// lock.
func judge(versions []Object, now time.Time) {
	proofs := slices.DeleteFunc(slices.Clone(versions), func(o Object) bool { return o.Deleted })
	for i := range versions {
		o := &versions[i]
		locked := func(p Object) bool { return p.lockedUntil.IsZero() || o.StoredAt.Before(p.lockedUntil) }
		switch {
		case !o.Deleted && o.id != proofs[0].id:
			o.unexpected = "a later version of the object exists"
		case !o.Deleted:
		case len(proofs) == 0 && now.Sub(o.StoredAt) < recoverable:
			o.unexpected = "it is a delete marker, and there is no proof"
		case slices.ContainsFunc(proofs, locked):
			o.unexpected = "it is a delete marker, and the proof is locked, or s3:GetObjectRetention is missing"
		}
	}
}

// read reads and verifies a version. The error is that of S3.
func (o *Object) read(ctx context.Context, client *s3.Client, bucket string) error {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &o.key, VersionId: &o.id,
		ChecksumMode: types.ChecksumModeEnabled},
		func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	defer out.Body.Close()
	// S3 says this to who has s3:GetObjectRetention (AWS, "HeadObject" in the S3 API reference).
	o.lockedUntil = aws.ToTime(out.ObjectLockRetainUntilDate)
	text, err := io.ReadAll(io.LimitReader(out.Body, proof.MaxSize+1))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.verify(text, o.key)
	if err != nil { // the SDK has compared the checksum
		o.Err = fmt.Errorf("%w: %w", proof.ErrDamaged, err)
	}
	return nil
}

// readFiles calls got for each file of a proof in a folder and below. The folder is a copy of a bucket, or a part of
// one: the path of a file ends with the key of its object.
func readFiles(ctx context.Context, folder string, got func(Object)) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	above, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return withoutPath(folder, err)
		case ctx.Err() != nil, entry.IsDir(), path.Ext(name) != ".json":
			return ctx.Err()
		}
		key := name
		for dir := above; printable(key) == "" && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			key = filepath.Base(dir) + "/" + key
		}
		var text []byte
		if entry.Type().IsRegular() { // a pipe would not end, and a link is no copy of an object
			file, err := root.Open(name)
			if err == nil {
				text, err = io.ReadAll(io.LimitReader(file, proof.MaxSize+1))
				_ = file.Close()
			}
			if err != nil {
				return withoutPath(folder, err)
			}
		}
		o := Object{Name: filepath.Join(folder, name)}
		if printable(key) == "" {
			o.Name = fmt.Sprintf("%s, a file with the SHA-256 %x", folder, sha256.Sum256(text))
		}
		o.verify(text, key)
		got(o)
		return nil
	})
}

// withoutPath returns an error of a file below a folder without the file's path.
func withoutPath(folder string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", folder, e.Err)
	}
	return err
}
