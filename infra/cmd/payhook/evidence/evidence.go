// Package evidence has the commands for the records of accepted deliveries: verify and find.
// They change nothing in AWS.
package evidence

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
)

// Command returns the commands.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	return cli.Group("evidence", "Verify and find the records of accepted deliveries",
		verifyCommand(p, t), findCommand(p, t))
}

func verifyCommand(p *cli.Program, t *deployment.Target) *cobra.Command {
	folder := ""
	cmd := &cobra.Command{
		Use:   "verify s3://BUCKET/PREFIX|FOLDER",
		Short: "Verify records",
		Long: `Verifies all records below a prefix such as accepted/2026/01/, or in a folder with
copies (its files *.json): nothing is damaged, the signature over payload, timestamp and
key id verifies with the stored JWK, the ids are those of the payload, the client
certificate was valid, and the name is that of the content. In a bucket, it reads all
versions of the objects, and checks S3's checksum. A folder needs no AWS. What does not
verify is a line with its reason. What is parked, below invalid/ and conflict/ of the
parking bucket, is verified in the same way.

  verified    signed, and with --keys by one of these keys
  damaged     changed, incomplete, or not a record
  notSigned   accepted by mtls alone: only the certificate is verified
  keyUnknown  signed, but by none of --keys
  versions    further versions of an object, and delete markers before the end of its
              lock. Payhook writes none

Status 1: something is damaged, has a further version, or, with --keys, is not signed by
one of them; or there is no record.`,
		Example: "  payhook evidence verify s3://BUCKET/accepted/2026/01/ --keys keys\n" +
			"  payhook evidence verify copies",
		Args: cli.Args("s3://BUCKET/PREFIX or FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := readKeys(folder)
			if err != nil {
				return cli.Usage("--keys: %w", err)
			}
			return verify(cmd.Context(), p, t, known, args[0])
		},
	}
	cmd.Flags().StringVar(&folder, "keys", "",
		"a `folder` with the JWKs of the service from another source, as /v1/keys/{keyId} returns them")
	return cmd
}

func verify(ctx context.Context, p *cli.Program, t *deployment.Target, known []*rsa.PublicKey, where string) error {
	var n struct {
		Verified   int `json:"verified"`
		Damaged    int `json:"damaged"`
		NotSigned  int `json:"notSigned"`
		KeyUnknown int `json:"keyUnknown"`
		Versions   int `json:"versions"`
	}
	problem := func(o object, text string) {
		_ = p.ShowLine(map[string]string{"at": o.name, "error": text}, "at", o.name, "error", text)
	}
	got := func(o object) {
		if o.version != "" {
			n.Versions++
			problem(o, o.version)
		}
		if o.deleted {
			return
		}
		err := o.err
		switch {
		case err != nil:
			n.Damaged++
		case o.key == nil:
			n.NotSigned++
			if known != nil {
				err = errors.New("not signed")
			}
		case known != nil && !slices.ContainsFunc(known, func(k *rsa.PublicKey) bool { return k.Equal(o.key) }):
			n.KeyUnknown++
			err = fmt.Errorf("the JWK of the key %s is not in --keys", o.proof.KeyID)
		default:
			n.Verified++
		}
		if err != nil {
			problem(o, err.Error())
		}
	}
	bucket, inS3 := strings.CutPrefix(where, "s3://")
	var err error
	if inS3 {
		bucket, prefix, _ := strings.Cut(bucket, "/")
		var client *s3.Client
		if client, err = anyBucket(ctx, p, t); err == nil {
			err = cli.Unreachable(scan(ctx, p, client, bucket, section{prefix: prefix}, got))
		}
	} else {
		err = files(ctx, p, where, got)
	}
	if err != nil {
		return err
	}
	if n.Verified+n.Damaged+n.NotSigned+n.KeyUnknown == 0 {
		return fmt.Errorf("there is no record in %s", where)
	}
	if p.JSON {
		err = p.PrintJSON(n)
	} else {
		fmt.Fprintf(p.Out, "verified %d, damaged %d, not signed %d, key unknown %d, further versions %d\n",
			n.Verified, n.Damaged, n.NotSigned, n.KeyUnknown, n.Versions)
	}
	if n.Damaged+n.Versions > 0 || known != nil && n.NotSigned+n.KeyUnknown > 0 {
		return cmp.Or(err, cli.ErrAttention)
	}
	return err
}

// anyBucket returns a client for which no stack is needed.
func anyBucket(ctx context.Context, p *cli.Program, t *deployment.Target) (*s3.Client, error) {
	err := p.Choose(ctx, t)
	if err != nil {
		return nil, err
	}
	d, _, err := deployment.Find(ctx, *t)
	if err != nil {
		return nil, cli.Unreachable(err)
	}
	return d.S3(), nil
}

// readKeys reads the JWKs in a folder; nil for none.
func readKeys(folder string) (all []*rsa.PublicKey, err error) {
	if folder == "" {
		return nil, nil
	}
	files, err := os.ReadDir(folder)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		text = payment.WithoutBOM(text)
		var jwk struct {
			KeyID string `json:"kid"`
		}
		if err := json.Unmarshal(text, &jwk); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		key, err := keys.ParseJWK(text, jwk.KeyID)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		all = append(all, key)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("there is no file in %s", folder)
	}
	return all, err
}
