package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"
)

const certificatesUsage = `Usage: operator certificates [--days N]

Which client certificates the webhook function accepts: the CAs of the truststore,
pins, subjects and revoked certificates; the certificate that was accepted last; and
how many days are left until the first of them expires. The redrive function says it,
which writes the same days as the metric TrustDaysLeft.

Exit status 1: fewer days are left than --days.

  --days N  how many days should be left (default 30)
  --json    one document: authentication, daysLeft, cas (subject, issuer,
            serialNumber, fingerprint, notAfter), pins, subjects, revoked, last
            (as cas, with pin and acceptedAt)
`

func certificatesFlags(_ *program, o *options, f *flag.FlagSet) { f.IntVar(&o.days, "days", 30, "") }

// certificate is a certificate as the redrive function reports it.
type certificate struct {
	Subject      string    `json:"subject"`
	Issuer       string    `json:"issuer"`
	SerialNumber string    `json:"serialNumber"`
	Fingerprint  string    `json:"fingerprint"`
	Pin          string    `json:"pin,omitempty"`
	NotAfter     time.Time `json:"notAfter"`
	AcceptedAt   time.Time `json:"acceptedAt,omitzero"`
}

// certificates is what the redrive function reports.
type certificates struct {
	Authentication string        `json:"authentication"`
	DaysLeft       float64       `json:"daysLeft"`
	CAs            []certificate `json:"cas"`
	Pins           []string      `json:"pins"`
	Subjects       []string      `json:"subjects"`
	Revoked        []string      `json:"revoked"`
	Last           *certificate  `json:"last"`
}

func (p *program) certificates(ctx context.Context, o *options, _ []string) error {
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	function, err := d.output(redriveOutput)
	if err != nil {
		return err
	}
	a, failure, err := invoke(ctx, d.lambda, function, request{Certificates: true})
	switch {
	case err != nil:
		return err
	case failure != "":
		return errors.New(failure)
	case a.Certificates == nil:
		return errors.New(olderFunction)
	}
	c := *a.Certificates
	required := len(c.CAs) > 0
	if o.json {
		err = printJSON(p.out, c)
	} else {
		err = p.printCertificates(c, required)
	}
	if err == nil && required && c.DaysLeft < float64(o.days) {
		return errPerson
	}
	return err
}

func (p *program) printCertificates(c certificates, required bool) error {
	if !required {
		_, err := fmt.Fprintf(p.out, "authentication is %s: no client certificate is required\n", plain(c.Authentication))
		return err
	}
	fmt.Fprintf(p.out, "authentication is %s; %.1f days are left\n", plain(c.Authentication), c.DaysLeft)
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	row := func(kind string, one certificate) {
		fmt.Fprintf(w, "%s\t%s\tuntil %s, %.0f days\tserial %s, issuer %s, SHA-256 %s\n", kind, plain(one.Subject), one.NotAfter.UTC().Format(time.RFC3339),
			one.NotAfter.Sub(p.now()).Hours()/24, plain(one.SerialNumber), plain(one.Issuer), plain(one.Fingerprint))
	}
	for _, ca := range c.CAs {
		row("CA", ca)
	}
	for _, list := range []struct {
		kind   string
		values []string
	}{{"pin", c.Pins}, {"subject", c.Subjects}, {"revoked", c.Revoked}} {
		for _, value := range list.values {
			fmt.Fprintf(w, "%s\t%s\t\t\n", list.kind, plain(value))
		}
	}
	if c.Last == nil {
		fmt.Fprintln(w, "last accepted\tnone yet\t\t")
	} else {
		row("last accepted", *c.Last)
		fmt.Fprintf(w, "\tat %s, pin %s\t\t\n", c.Last.AcceptedAt.UTC().Format(time.RFC3339), plain(c.Last.Pin))
	}
	return w.Flush()
}
