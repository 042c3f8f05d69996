// Package evidence has the commands for the records of accepted deliveries: verify and find.
//
// It guarantees that a record is called verified only if its line is undamaged, and
// [records.Record.Verify] and, if they are given, the keys of another source confirm it. It
// changes nothing in AWS.
//
// policy.json is the policy for whoever runs the commands with a bucket. A test derives from
// this package what it must allow.
package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/json/v2"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
)

// options are those of both commands.
type options struct {
	*cli.Program
	target *deployment.Target
	s3     *s3.Client // nil until it is needed
}

// Command returns the commands.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &options{Program: p, target: t}
	return cli.Group("evidence", "Verify and find the records of accepted deliveries",
		o.verifyCommand(), o.findCommand())
}

func (o *options) verifyCommand() *cobra.Command {
	keys := ""
	cmd := &cobra.Command{
		Use:   "verify FILE|FOLDER|-|s3://BUCKET/PREFIX…",
		Short: "Verify records",
		Long: `Verifies each record: the line is undamaged, the signature over payload, timestamp and
key id verifies with the stored JWK, the ids are those of the payload, and the client
certificate was valid. Records are JSON lines, compressed with gzip or not. Only s3://
needs AWS: all versions of the objects are read, also those below a delete marker.
Each problem is a line with file, line and reason. The summary counts

  verified         records; the numbers below are parts of it
  failed           lines and records that do not verify
  repeated         the same record again: Firehose delivers at least once
  recordedAgain    further records of a delivery: the service sent it again, and the
                   first record was not known to be stored
  notSigned        accepted by mtls alone: it shows which certificate was accepted, not
                   that its owner sent the payload
  keysNotCompared  verified only with the JWK in the record
  hidden           objects below a later version or a delete marker

--keys is a folder with the keys of the service from another source: files with a JWK, as
/v1/keys/{keyId} returns it, or with a JWK set.

Status 1: something does not verify, or there is no record.`,
		Example: "  payhook evidence verify s3://BUCKET/2026/01/ --keys keys\n  payhook evidence verify evidence.gz",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.verify(cmd.Context(), keys, args) },
	}
	cmd.Flags().StringVar(&keys, "keys", "", "a `folder` with the keys of the service")
	return cmd
}

// problem is what does not verify.
type problem struct {
	At    string `json:"at"` // FILE:LINE
	Error string `json:"error"`
}

// verifier collects the results. The help text has their meaning.
type verifier struct {
	Verified        int `json:"verified"`
	Failed          int `json:"failed"`
	Repeated        int `json:"repeated"`
	RecordedAgain   int `json:"recordedAgain"`
	NotSigned       int `json:"notSigned"`
	KeysNotCompared int `json:"keysNotCompared"`
	Hidden          int `json:"hidden"`
	Files           int `json:"files"`
	Lines           int `json:"lines"`

	p    *cli.Program
	keys map[jwk]bool      // nil: not compared
	seen map[[16]byte]bool // of records and deliveryIds
}

func (o *options) verify(ctx context.Context, keys string, names []string) (err error) {
	v := &verifier{p: o.Program, seen: map[[16]byte]bool{}}
	if keys != "" {
		if v.keys, err = readKeys(keys); err != nil {
			return cli.Usage("--keys: %w", err)
		}
	}
	s := &scan{options: o, look: v.look, got: v.got}
	if err := s.run(ctx, names); err != nil {
		return err
	}
	v.Files, v.Lines, v.Hidden = s.files, s.lines, s.hidden
	if err := o.Print(v); err != nil || v.Failed == 0 && v.Verified > 0 {
		return err
	}
	return cli.ErrAttention
}

// look verifies a record, also with the keys of another source.
func (v *verifier) look(i *item) {
	if verify(i); i.err == nil && v.keys != nil && i.record.HasSignature() {
		i.err = v.has(i.record.JWK)
	}
}

// got counts a record.
func (v *verifier) got(i *item) {
	if i.err != nil {
		v.Failed++
		_ = v.p.PrintLine(problem{i.at, i.err.Error()})
		return
	}
	v.Verified++
	if v.again(records.Digest(i.line)) {
		v.Repeated++
		return
	}
	if v.again(strings.ToLower(i.record.DeliveryID)) {
		v.RecordedAgain++
	}
	if !i.record.HasSignature() {
		v.NotSigned++
	} else if v.keys == nil {
		v.KeysNotCompared++
	}
}

// again reports whether it was called with the same text before. It keeps half of its SHA-256.
func (v *verifier) again(text string) bool {
	sum := sha256.Sum256([]byte(text))
	before := v.seen[[16]byte(sum[:])]
	v.seen[[16]byte(sum[:])] = true
	return before
}

// jwk is what makes a key.
type jwk struct {
	Kid string `json:"kid"`
	N   string `json:"n"`
	E   string `json:"e"`
}

// readKeys reads the JWKs and JWK sets in a folder.
func readKeys(folder string) (map[jwk]bool, error) {
	found := map[jwk]bool{}
	return found, walk(folder, func(path string, f *os.File) error {
		var file struct {
			jwk
			Keys []jwk `json:"keys"`
		}
		if err := json.UnmarshalRead(f, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, key := range append(file.Keys, file.jwk) {
			key.Kid = strings.ToLower(key.Kid)
			found[key] = true
		}
		return nil
	})
}

// has returns an error unless the keys have that of a record.
func (v *verifier) has(text []byte) error {
	var key jwk
	if err := json.Unmarshal(text, &key); err != nil {
		return err
	}
	if key.Kid = strings.ToLower(key.Kid); !v.keys[key] {
		return fmt.Errorf("the JWK is not the key %s of --keys", key.Kid)
	}
	return nil
}
