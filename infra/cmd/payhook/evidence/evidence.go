// Package evidence has the commands for the records of accepted deliveries: verify and find.
// They change nothing in AWS.
//
// policy.json is the policy for whoever runs the commands with a bucket. A test derives from
// this package what it must allow.
package evidence

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
)

// Command returns the commands.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	return cli.Group("evidence", "Verify and find the records of accepted deliveries",
		verifyCommand(p, t), findCommand(p, t))
}

func verifyCommand(p *cli.Program, t *deployment.Target) *cobra.Command {
	keys := ""
	cmd := &cobra.Command{
		Use:   "verify FILE|s3://BUCKET/PREFIX…",
		Short: "Verify records",
		Long: `Verifies each record: the line is undamaged, the signature over payload, timestamp and
key id verifies with the stored JWK, the ids are those of the payload, and the client
certificate was valid. Files have JSON lines, compressed with gzip or not. Only s3://
needs AWS. What does not verify is a line with file, line and reason. In the summary,
duplicates are further records of a delivery, and notSigned those that were accepted by
mtls alone.

Status 1: something does not verify, or there is no record.`,
		Example: "  payhook evidence verify s3://BUCKET/2026/01/ --keys keys\n  payhook evidence verify evidence.gz",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verify(cmd.Context(), &pass{Program: p, target: t}, keys, args)
		},
	}
	cmd.Flags().StringVar(&keys, "keys", "",
		"a `folder` with the JWKs of the service from another source, as /v1/keys/{keyId} returns them")
	return cmd
}

func verify(ctx context.Context, p *pass, keys string, names []string) (err error) {
	if keys != "" {
		if p.keys, err = readKeys(keys); err != nil {
			return cli.Usage("--keys: %w", err)
		}
	}
	var summary struct {
		Verified   int `json:"verified"`
		Failed     int `json:"failed"`
		Duplicates int `json:"duplicates"`
		NotSigned  int `json:"notSigned"`
	}
	seen := map[string]bool{} // by deliveryId; an invalid delivery can have none
	p.got = func(i *item) {
		if i.err != nil {
			summary.Failed++
			_ = p.PrintLine(map[string]string{"at": i.at, "error": i.err.Error()})
			return
		}
		summary.Verified++
		id := cmp.Or(strings.ToLower(i.record.DeliveryID), records.Digest(i.line))
		if seen[id] {
			summary.Duplicates++
		}
		seen[id] = true
		if !i.record.HasSignature() {
			summary.NotSigned++
		}
	}
	if err := p.run(ctx, names); err != nil {
		return err
	}
	if err := p.Print(summary); err != nil || summary.Failed == 0 && summary.Verified > 0 {
		return err
	}
	return cli.ErrAttention
}

// jwk is an RSA key.
type jwk struct {
	N string `json:"n"`
	E string `json:"e"`
}

// readKeys reads the JWKs in a folder.
func readKeys(folder string) (map[jwk]bool, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	found := map[jwk]bool{}
	for _, file := range files {
		var key jwk
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err = cmp.Or(err, json.Unmarshal(text, &key)); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		found[key] = true
	}
	return found, nil
}

func findCommand(p *cli.Program, t *deployment.Target) *cobra.Command {
	var from, to time.Time
	cmd := &cobra.Command{
		Use:   "find EVENT_ID",
		Short: "Find the record of one event",
		Long: `Finds the record of an event in the bucket of the stack, verifies it, and writes it to
EVENT_ID.evidence.json. It prints the commands of a shell that verify the file with
OpenSSL, without Payhook. Of several records, it takes the one that was accepted first.

It searches the day that the ledger has, or --from to --to, and a day before and after.

Status 1: no record was found, or one does not verify.`,
		Example: "  payhook evidence find 0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d --from 2026-01-31 --to 2026-02-02",
		Args:    cli.Args("EVENT_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := strings.ToLower(args[0])
			if !payment.IsUUID(id) {
				return cli.Usage("EVENT_ID must be a UUID")
			}
			d, err := p.Connect(cmd.Context(), t)
			if err == nil && from.IsZero() {
				from, err = recordedAt(cmd.Context(), d, id)
				to = from
			}
			if err != nil {
				return cli.Unreachable(err)
			}
			return find(cmd.Context(), p, d, id, from, cmp.Or(to, p.Now()))
		},
	}
	day := func(to *time.Time) func(string) error {
		return func(text string) (err error) { *to, err = time.Parse(time.DateOnly, text); return err }
	}
	cmd.Flags().Func("from", "the first `day` (UTC), such as 2026-01-31", day(&from))
	cmd.Flags().Func("to", "the last `day` (default today)", day(&to))
	return cmd
}

// recordedAt returns when the record of an event was stored.
func recordedAt(ctx context.Context, d *deployment.Deployment, id string) (time.Time, error) {
	item, known, err := ledger.NewInspector(dynamodb.NewFromConfig(d.AWS), d.LedgerTable).Find(ctx, id)
	if err == nil && !known {
		err = cli.Usage("the ledger does not know the event (any more): give the days with --from and --to")
	}
	return cmp.Or(item.EvidenceAt, item.RecordedAt), err
}

//go:embed openssl.sh
var opensslCommands string

func find(ctx context.Context, p *cli.Program, d *deployment.Deployment, id string, from, to time.Time) error {
	if d.EvidenceBucket == "" {
		return cli.Usage("the stack keeps no evidence, as the setting evidence says")
	}
	var days []string
	// Firehose names the folder of an object after its first record.
	for at := from.AddDate(0, 0, -1); !at.After(to.AddDate(0, 0, 1)); at = at.AddDate(0, 0, 1) {
		days = append(days, "s3://"+d.EvidenceBucket+"/"+at.UTC().Format("2006/01/02/"))
	}
	var found *item
	failed := false // something could not be read, or a record with the event does not verify
	got := func(i *item) {
		has := slices.ContainsFunc(i.record.EventIDs, func(text string) bool { return strings.EqualFold(text, id) })
		if i.err != nil {
			failed = true
			fmt.Fprintf(p.Err, "%s: %v\n", cli.Plain(i.at), i.err)
		} else if has && (found == nil || i.record.AcceptedAt.Before(found.record.AcceptedAt)) {
			found = i
		}
	}
	if err := (&pass{Program: p, client: d.S3(), only: id, got: got}).run(ctx, days); err != nil {
		return err
	}
	if found == nil {
		fmt.Fprintln(p.Err, "no record of the event was found in", strings.Join(days, " "))
		return cli.ErrAttention
	}
	file := id + ".evidence.json"
	if err := os.WriteFile(file, append(found.line, '\n'), 0o600); err != nil {
		return err
	}
	// A line feed in a name must not become a command.
	_, err := fmt.Fprintf(p.Out, "# The record from %s verifies. These commands verify it without Payhook:\n"+
		"file=%s acceptedAt=%d\n%s", cli.Plain(found.at), file, found.record.AcceptedAt.Unix(), opensslCommands)
	if err == nil && failed {
		return cli.ErrAttention
	}
	return err
}
