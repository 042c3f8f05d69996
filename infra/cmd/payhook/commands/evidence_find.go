package commands

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

func (p *program) findCommand() *cobra.Command {
	var in Section
	var out string
	cmd := &cobra.Command{
		Use:   "find EVENT_ID|DELIVERY_ID",
		Short: "Find the proofs of an event or a delivery",
		Args: cobra.MatchAll(oneUUID("EVENT_ID or DELIVERY_ID"), func(*cobra.Command, []string) error {
			if files, err := os.ReadDir(out); len(files) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("--out must be a new or empty folder: %s", out)
			}
			return in.Check(p.Now())
		}),
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			return find(ctx, p.Program, s, strings.ToLower(args[0]), in, out)
		}),
	}
	in.Flags(cmd.Flags())
	cmd.Flags().StringVar(&out, "out", "", "the new `folder` into which the proof is written, and what OpenSSL needs")
	return cmd
}

// longest is how long before its recording an event is searched. An event that was parked was
// recorded again when it was replayed.
const longest = 31 * 24 * time.Hour

// around returns where the proofs of an event are. The time of a proof is that of the service's clock, or of
// another event of the delivery. When S3 stored it is the time of the recording.
func around(ctx context.Context, s *connected, id string) (in Section, err error) {
	item, known, err := ledger.Find(ctx, s.ledger, id, false)
	if err == nil && !known {
		err = cli.Usage("the ledger has no event with this id (any more): give the time with --from and --to, " +
			"also for a deliveryId")
	}
	first, last := item.RecordedAt, item.RecordedAt
	if at := item.EventTimestamp; at.Before(first) && first.Sub(at) < longest {
		first = at
	} else if at.After(last) {
		last = at
	}
	return Section{From: first.Add(-time.Hour), To: last.Add(ahead), storedUpTo: item.RecordedAt.Add(time.Hour)}, err
}

type found struct {
	StoredAt time.Time `json:"storedAt"` // by S3
	// These are empty if the proof does not verify. None has a text that somebody could choose.
	DeliveryID string    `json:"deliveryId,omitempty"`
	SignedAt   time.Time `json:"signedAt,omitzero"`
	KeyID      string    `json:"keyId,omitempty"`
	Result     string    `json:"result"`
	Object     string    `json:"object"`
}

func find(ctx context.Context, p *cli.Program, s *connected, id string, in Section, folder string) (err error) {
	if err := hasEvidence(s.Stack); err != nil {
		return err
	}
	if in.From.IsZero() {
		if in, err = around(ctx, s, id); err != nil {
			return err
		}
	}
	var all []Object
	problems, count := 0, p.Counter("proof", "proofs")
	if err := Scan(ctx, s.S3(), s.EvidenceBucket, in, func(o Object) {
		count(1)
		if has(o.Proof, id) {
			all = append(all, o)
		}
		if o.unexpected != "" || o.Err != nil {
			problems++
			fmt.Fprintf(p.Err, "%s: %s\n", cli.Plain(o.Name), cmp.Or(o.unexpected, lambdaruntime.Cause(o.Err)))
		}
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintf(p.Err, "no proof of %s has a time %s; --from and --to choose another time\n", id, in)
		return cli.ErrAttention
	}
	slices.SortStableFunc(all, func(a, b Object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.StoredAt.Compare(b.StoredAt))
	})
	list := make([]found, len(all))
	for i, o := range all {
		results := []string{"verifies", "not signed: the certificate verifies", lambdaruntime.Cause(o.Err)}
		list[i] = found{StoredAt: o.StoredAt.UTC(), Result: results[rank(o)], Object: o.Name}
		if o.Err == nil {
			list[i].DeliveryID, list[i].KeyID = o.Proof.DeliveryID, o.Proof.KeyID
			list[i].SignedAt, _ = signature.TimeOf(o.Proof.Timestamp)
		}
	}
	if err := cli.List(p, list); err != nil {
		return err
	}
	for _, difference := range differences(all, id) {
		problems++
		fmt.Fprintln(p.Err, "the proofs differ in", difference)
	}
	fmt.Fprintf(p.Err, "searched %s; later deliveries: --from and --to\n", in)
	if folder != "" && all[0].Err == nil {
		if err := write(p, folder, id, all[0]); err != nil {
			return cli.Failed(err)
		}
	}
	return attention(nil, problems > 0)
}

// rank orders proofs: signed, not signed, not verified.
func rank(o Object) int {
	switch {
	case o.Err != nil:
		return 2
	case o.signer == nil:
		return 1
	}
	return 0
}

// has reports whether a proof is of the delivery or has the event of an id.
func has(r proof.Proof, id string) bool {
	return strings.EqualFold(r.DeliveryID, id) ||
		slices.ContainsFunc(r.EventIDs, func(text string) bool { return strings.EqualFold(text, id) })
}

// differences returns in what the proofs that verify differ.
func differences(all []Object, id string) (in []string) {
	contents, signers := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		if o.Err != nil {
			continue
		}
		if o.signer != nil {
			signers[o.signer.N.String()] = true
		}
		found := false
		delivery, _ := payment.DecodeDelivery(o.Proof.Payload)
		for _, e := range delivery.Events {
			if strings.EqualFold(e.EventID, id) {
				contents[string(e.Bytes)], found = true, true
			}
		}
		if !found { // the id is that of the delivery, or of an event that cannot be decoded
			contents[string(o.Proof.Payload)] = true
		}
	}
	if len(contents) > 1 {
		in = append(in, "the bytes")
	}
	if len(signers) > 1 {
		in = append(in, "the key")
	}
	return in
}

// write writes a proof that verifies to its own path below a folder, and what OpenSSL verifies beside it. It prints
// the commands for OpenSSL.
func write(p *cli.Program, folder, id string, o Object) error {
	text, errProof := o.Proof.Encode()
	folder, err := filepath.Abs(folder)
	if err := errors.Join(errProof, err); err != nil {
		return err
	}
	files, commands := map[string][]byte{o.key: text}, ""
	add := func(ending string, content []byte) (argument string) {
		files[id+ending] = content
		return stack.Quote(filepath.Join(folder, id+ending))
	}
	if r := o.Proof; o.signer != nil {
		der, errKey := x509.MarshalPKIXPublicKey(o.signer)
		sig, errSignature := base64.RawURLEncoding.DecodeString(strings.TrimRight(r.Signature, "="))
		if err := errors.Join(errKey, errSignature); err != nil {
			return err
		}
		commands = fmt.Sprintln("openssl dgst -sha256 -verify",
			add(".key.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "-signature",
			add(".signature", sig), add(".message", slices.Concat(r.Payload, []byte("\n"+r.Timestamp+"\n"+r.KeyID))))
	}
	if c := o.Proof.Certificate; c != nil {
		chain := add(".chain.pem", []byte(strings.Join(c.Chain, "")))
		commands += fmt.Sprintln("openssl verify -purpose sslclient -attime", c.AcceptedAt.Unix(), "-CAfile", chain,
			chain)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder) // nothing is written outside, whatever the key of the proof is
	if err != nil {
		return err
	}
	defer root.Close()
	for name, content := range files {
		if err = root.MkdirAll(path.Dir(name), 0o700); err == nil {
			err = root.WriteFile(name, content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(p.Err, "%s has the first proof, with payment data; this verifies it with OpenSSL:\n%s", folder,
		commands)
	return nil
}
