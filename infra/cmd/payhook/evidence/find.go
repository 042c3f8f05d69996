package evidence

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math/big"
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
	found := found{f.output, first.at, first.record.DeliveryID, first.record.AcceptedAt, len(f.found) - 1,
		commands(f.output, first.record)}
	if f.JSON {
		err = f.PrintJSON(found)
	} else {
		_, err = fmt.Fprintf(f.Out, "# The record of delivery %s, accepted at %s, from %s, verifies.\n"+
			"# There are %d further records with the event.\n# These commands verify it without Payhook:\n%s\n",
			found.DeliveryID, cli.Stamp(found.AcceptedAt), found.At, found.Further, strings.Join(found.Commands, "\n"))
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
	Further    int       `json:"further"` // records with the event
	Commands   []string  `json:"commands"`
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
		fmt.Fprintf(f.Err, "%s: %v\n", i.at, i.err)
	} else if slices.ContainsFunc(i.record.EventIDs, func(id string) bool { return strings.EqualFold(id, f.id) }) {
		f.found = append(f.found, *i)
	}
}

// commands returns the commands of a shell that verify the record in a file. The public key in DER is
// the modulus with other bytes before and after it, and base64url is padded.
func commands(file string, r records.Record) (all []string) {
	all = append(all, "file='"+strings.ReplaceAll(file, "'", `'\''`)+"'",
		`field() { tr ',' '\n' < "$file" | sed -n 's/^"'"$1"'":"\(.*\)"$/\1/p'; }`,
		`bytes() { { field "$1" | tr -d '\n' | tr '_-' '/+'; printf '%s' "$2"; } | openssl base64 -d -A; }`)
	if r.HasSignature() {
		n, before, after := partsOf(r.JWK)
		pad := func(text string) string { return "'" + strings.Repeat("=", (4-len(text)%4)%4) + "'" }
		all = append(all,
			`{ bytes payload; printf '\n%s\n%s' "$(field timestamp)" "$(field keyId)"; } > "$file.signed"`,
			`bytes signature `+pad(r.Signature)+` > "$file.signature"`,
			`{ printf '`+octal(before)+`'; bytes n `+pad(n)+`; printf '`+octal(after)+`'; } > "$file.der"`,
			`openssl pkey -pubin -inform DER -in "$file.der" -out "$file.pem"`,
			`openssl dgst -sha256 -verify "$file.pem" -signature "$file.signature" "$file.signed"`)
	}
	if r.Certificate != nil {
		all = append(all,
			`chain=$(tr '{' '\n' < "$file" | sed -n 's/^"payloadDigest.*"chain":\["\([^]]*\)"\].*/\1/p' | sed 's/","//g')`,
			`printf '%b' "$chain" > "$file.chain"`,
			fmt.Sprintf(`openssl verify -purpose sslclient -attime %d -CAfile "$file.chain" "$file.chain"`,
				r.Certificate.AcceptedAt.Unix()))
	}
	return all
}

// partsOf returns the modulus of a JWK, which is valid, and what is before and after it in DER.
func partsOf(text []byte) (n string, before, after []byte) {
	var key jwk
	_ = json.Unmarshal(text, &key)
	modulus, _ := base64.RawURLEncoding.DecodeString(key.N)
	exponent, _ := base64.RawURLEncoding.DecodeString(key.E)
	der, _ := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).SetBytes(modulus),
		E: int(new(big.Int).SetBytes(exponent).Int64())})
	before, after, _ = bytes.Cut(der, modulus)
	return key.N, before, after
}

func octal(text []byte) (escaped string) {
	for _, octet := range text {
		escaped += fmt.Sprintf(`\%03o`, octet)
	}
	return escaped
}
