package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
)

func (o *options) findCommand() *cobra.Command {
	f := &finder{options: o}
	cmd := &cobra.Command{
		Use:   "find EVENT_ID [FILE|FOLDER|s3://BUCKET/PREFIX…]",
		Short: "Find the record of one event",
		Long: `Finds the record of the delivery with an event, verifies it, and writes it as one file.
It prints the commands of a shell that verify the file with OpenSSL, without Payhook.

It searches the bucket of the stack, from the day before to the day after the ledger says
that the record was stored, since Firehose names the folder of an object after its first
record. --from and --to give the days if the ledger does not know the event any more.
In place of the bucket, it searches the files, folders and objects that are named.

Of several records, it writes the one that was accepted first.

Status 1: no record was found, or one does not verify.`,
		Example: "  payhook evidence find 0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d --from 2026-01-31 --to 2026-02-02",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || !payment.IsUUID(args[0]) {
				return errors.New("the first argument must be the UUID of an event")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.id = strings.ToLower(args[0])
			return f.find(cmd.Context(), args[1:])
		},
	}
	day := func(to *time.Time) func(string) error {
		return func(text string) (err error) { *to, err = time.Parse(time.DateOnly, text); return err }
	}
	cmd.Flags().Func("from", "the first `day` (UTC), such as 2026-01-31", day(&f.from))
	cmd.Flags().Func("to", "the last `day`", day(&f.to))
	cmd.Flags().StringVar(&f.output, "output", "", "the `file` to write (default EVENT_ID.evidence.json)")
	return cmd
}

// finder finds the record of an event.
type finder struct {
	*options
	id       string // in lower case
	from, to time.Time
	output   string
	found    []item
	failed   bool // something could not be read, or a record with the event does not verify
}

func (f *finder) find(ctx context.Context, names []string) (err error) {
	if f.output == "" {
		f.output = f.id + ".evidence.json"
	}
	if _, err := os.Stat(f.output); err == nil {
		return cli.Usage("%s exists: choose another file with --output", f.output)
	}
	if len(names) == 0 {
		if names, err = f.days(ctx); err != nil {
			return cli.Unreachable(err)
		}
	}
	s := &scan{options: f.options, look: f.look, got: f.got}
	if err := s.run(ctx, names); err != nil {
		return err
	}
	if len(f.found) == 0 {
		fmt.Fprintln(f.Err, "no record of the event was found in", strings.Join(names, " "))
		return cli.ErrAttention
	}
	first := slices.MinFunc(f.found, func(a, b item) int { return a.record.AcceptedAt.Compare(b.record.AcceptedAt) })
	if err := os.WriteFile(f.output, append(first.line, '\n'), 0o600); err != nil {
		return err
	}
	result := found{f.output, first.at, first.record.DeliveryID, first.record.AcceptedAt,
		commands(f.output, first.record)}
	if f.JSON {
		err = f.PrintJSON(result)
	} else {
		// A line feed in a name must not become a command.
		_, err = fmt.Fprintf(f.Out, "# The record of delivery %s, accepted at %s, from %s, verifies.\n"+
			"# These commands verify it without Payhook:\n%s", cli.Plain(result.DeliveryID),
			cli.Stamp(result.AcceptedAt), cli.Plain(result.At), result.Commands)
	}
	if f.failed {
		return cmp.Or(err, cli.ErrAttention)
	}
	return err
}

// found is the record that find writes.
type found struct {
	File       string    `json:"file"`
	At         string    `json:"at"` // where it was found
	DeliveryID string    `json:"deliveryId"`
	AcceptedAt time.Time `json:"acceptedAt"`
	Commands   string    `json:"commands"`
}

// days returns the prefixes of the days on which the record can have been stored.
func (f *finder) days(ctx context.Context) (names []string, err error) {
	d, err := f.Connect(ctx, f.target)
	if err != nil {
		return nil, err
	}
	if d.EvidenceBucket == "" {
		return nil, cli.Usage("the stack keeps no evidence, as the setting evidence says")
	}
	from, to := f.from, f.to
	if from.IsZero() {
		item, known, err := ledger.NewInspector(dynamodb.NewFromConfig(d.AWS), d.LedgerTable).Find(ctx, f.id)
		if err != nil {
			return nil, err
		}
		if from = item.EvidenceAt; from.IsZero() {
			from = item.RecordedAt
		}
		if to = from; !known {
			return nil, cli.Usage("the ledger does not know the event (any more): give the days with --from and --to")
		}
	}
	if to.IsZero() {
		to = f.Now()
	}
	for at := from.AddDate(0, 0, -1); !at.After(to.AddDate(0, 0, 1)); at = at.AddDate(0, 0, 1) {
		names = append(names, "s3://"+d.EvidenceBucket+"/"+at.UTC().Format("2006/01/02/"))
	}
	return names, nil
}

// look verifies a record if it has the event.
func (f *finder) look(i *item) {
	if bytes.Contains(bytes.ToLower(i.line), []byte(f.id)) {
		verify(i)
	}
}

func (f *finder) got(i *item) {
	if i.err != nil {
		f.failed = true
		fmt.Fprintf(f.Err, "%s: %v\n", cli.Plain(i.at), i.err)
	} else if slices.ContainsFunc(i.record.EventIDs, func(id string) bool { return strings.EqualFold(id, f.id) }) {
		f.found = append(f.found, *i)
	}
}

// commands returns the commands of a shell that verify the record in a file.
func commands(file string, r records.Record) string {
	all := "file='" + strings.ReplaceAll(file, "'", `'\''`) + "'\n" + readCommands
	if r.HasSignature() {
		all += signatureCommands
	}
	if c := r.Certificate; c != nil {
		all += fmt.Sprintf(certificateCommands, c.AcceptedAt.Unix())
	}
	return all
}

// A member of a record begins after a comma, and has no comma in it. Base64url has no padding.
const readCommands = `field() { tr ',' '\n' < "$file" | sed -n 's/^"'"$1"'":"\(.*\)".*$/\1/p'; }
padded() { v=$(field "$1" | tr '_-' '/+'); while [ $((${#v} % 4)) != 0 ]; do v="$v="; done; printf %s "$v"; }
bytes() { padded "$1" | openssl base64 -d -A; }
number() { bytes "$1" | od -An -v -tx1 | tr -d ' \n'; }
`

// The key is the SubjectPublicKeyInfo of RFC 3279, section 2.3.1.
const signatureCommands = `{ bytes payload; printf '\n%s\n%s' "$(field timestamp)" "$(field keyId)"; } > "$file.signed"
bytes signature > "$file.signature"
printf '%s\n' asn1=SEQUENCE:key '[key]' a=SEQUENCE:rsa b=BITWRAP,SEQUENCE:numbers '[rsa]' a=OID:rsaEncryption b=NULL \
  '[numbers]' n=INTEGER:0x$(number n) e=INTEGER:0x$(number e) > "$file.asn1"
openssl asn1parse -genconf "$file.asn1" -noout -out "$file.der"
openssl pkey -pubin -inform DER -in "$file.der" -out "$file.pem"
openssl dgst -sha256 -verify "$file.pem" -signature "$file.signature" "$file.signed"
`

const certificateCommands = `chain=$(tr '{' '\n' < "$file" | sed -n 's/^"payloadDigest.*"chain":\["\([^]]*\)"\].*/\1/p')
printf '%%b' "$chain" | sed 's/","//' > "$file.chain"
openssl verify -purpose sslclient -attime %d -CAfile "$file.chain" "$file.chain"
`
