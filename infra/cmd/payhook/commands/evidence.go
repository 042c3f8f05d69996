package commands

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/payment"
)

func verifyCommand(p *cli.Program) *cobra.Command {
	var known []*rsa.PublicKey
	cmd := &cobra.Command{
		Use:   "verify [s3://BUCKET/PREFIX|FOLDER]",
		Short: "Verify proofs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verify(cmd.Context(), p, known, append(args, "")[0])
		},
	}
	cmd.Flags().Func("keys",
		"a `folder` with the JWKs of the service from another source, as /v1/keys/{keyId} returns them",
		func(folder string) (err error) { known, err = readKeys(folder); return err })
	return cmd
}

type tally struct {
	Verified   int `json:"verified"`
	Damaged    int `json:"damaged"`
	NotSigned  int `json:"notSigned"`
	KeyUnknown int `json:"keyUnknown"`
	Versions   int `json:"versions"`
}

// add counts a proof and returns what is wrong with it. Without known keys, every signer is good.
func (n *tally) add(o Object, known []*rsa.PublicKey) (problem string) {
	switch {
	case o.Deleted:
	case o.Err != nil:
		n.Damaged++
		return lambdaruntime.Cause(o.Err)
	case o.signer == nil:
		n.NotSigned++
		if known != nil {
			return "not signed"
		}
	case known != nil && !slices.ContainsFunc(known, func(k *rsa.PublicKey) bool { return k.Equal(o.signer) }):
		n.KeyUnknown++
		return "the JWK of the key " + o.Proof.KeyID + " is not in --keys"
	default:
		n.Verified++
	}
	return ""
}

// verify verifies the proofs in a bucket or a folder; "" for the bucket of the stack.
func verify(ctx context.Context, p *cli.Program, known []*rsa.PublicKey, where string) error {
	var n tally
	count := p.Counter("proof", "proofs")
	got := func(o Object) {
		count(1)
		if o.unexpected != "" {
			n.Versions++
		}
		for _, problem := range []string{o.unexpected, n.add(o, known)} {
			if problem != "" {
				_ = p.ShowLine(map[string]string{"at": o.Name, "error": problem}, nil)
			}
		}
	}
	var err error
	if where == "" || strings.HasPrefix(where, "s3://") {
		var client *s3.Client
		if client, where, err = bucketAt(ctx, p, where); err == nil {
			bucket, prefix, _ := strings.Cut(strings.TrimPrefix(where, "s3://"), "/")
			err = Scan(ctx, client, bucket, Section{Prefix: prefix}, got)
		}
		err = cli.Unreachable(err)
	} else {
		err = readFiles(ctx, where, got)
	}
	if err != nil {
		return err
	}
	if n.Verified+n.Damaged+n.NotSigned+n.KeyUnknown == 0 {
		return fmt.Errorf("there is no proof in %s", where)
	}
	return attention(p.ShowLine(n, nil), n.Damaged+n.Versions > 0 || known != nil && n.NotSigned+n.KeyUnknown > 0)
}

// bucketAt returns a client for the bucket of an address, for which no stack is needed. Without an address, it
// returns that of the bucket of the stack.
func bucketAt(ctx context.Context, p *cli.Program, where string) (_ *s3.Client, address string, err error) {
	var d *stack.Stack
	if where == "" {
		if d, err = p.Connect(ctx); err == nil {
			err = hasEvidence(d)
		}
	} else if err = p.Choose(ctx); err == nil {
		d, _, err = stack.Find(ctx, p.Target)
	}
	if err != nil {
		return nil, "", err
	}
	return d.S3(), cmp.Or(where, "s3://"+d.EvidenceBucket), nil
}

func hasEvidence(d *stack.Stack) error {
	if d.EvidenceBucket == "" {
		return cli.Usage("the stack stores no evidence: the setting evidence is off")
	}
	return nil
}

// readKeys reads the JWKs in a folder.
func readKeys(folder string) (all []*rsa.PublicKey, err error) {
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
		var key *rsa.PublicKey
		if err = json.Unmarshal(text, &jwk); err == nil {
			key, err = keys.ParseJWK(text, jwk.KeyID)
		}
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
