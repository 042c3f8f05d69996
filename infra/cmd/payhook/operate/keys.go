package operate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

func (p *program) keysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys [ID]",
		Short: "Show the cached keys and the accepted CAs",
		Long: `Shows the payment service's keys as the functions share them: the state, when the
service was asked, and the thumbprint (RFC 7638, SHA-256), with which the service can
tell whether a key is theirs. With an ID, with or without hyphens, it shows more of
that key, its URL, and what the URL answers now. With keysAuth=bearer, that sends the
access token. It is not recorded when a key was last used.

  cached     the functions use it
  stale      it is older than an hour: the functions ask the service, and use it until
             expiresAt while the service does not answer
  withdrawn  the service calls it unknown; the functions use it until that has lasted
             for 5 minutes
  removed    the service no longer has it; webhooks signed with it are answered 401
  unknown    the service did not know the id
  rejected   the functions do not use it, for the cause, and ask the service
  revoked    the setting revokedKeys has it; webhooks signed with it are answered 401
  expired    the functions no longer use it, and ask the service
  absent     not cached: the functions ask the service

If the service returns another key under the same id, the functions find out by
themselves, when a signature does not verify.

Without an ID, it also shows which client certificates are accepted: the CAs of the
truststore, the days until the first of them expires, pins, subjects and revoked keys. A
pin is the SHA-256 of a key, as in the settings clientCertPins and revokedKeys. Without
CAs, no client certificate is required. The redrive function reports it.

Status 1: fewer than 30 days are left; with an ID, the state is neither cached nor
stale.`,
		Example: "  payhook keys\n  payhook keys 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d",
		Args: func(_ *cobra.Command, args []string) error {
			if _, isID := payment.KeyID(strings.Join(args, " ")); len(args) > 0 && !isID {
				return errors.New("the id must be a UUID, with or without hyphens")
			}
			return nil
		},
		RunE: p.on(func(ctx context.Context, s *stack, args []string) error {
			conf, err := s.Deployed(ctx, "webhook")
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return p.allKeys(ctx, s, conf.Revoked)
			}
			return p.key(ctx, s, args[0], conf)
		}),
	}
}

// cachedKey is what is shown of a key.
type cachedKey struct {
	KeyID        string    `json:"keyId"`
	State        string    `json:"state"`
	Cause        string    `json:"cause,omitempty"`
	Bits         int       `json:"bits,omitzero"`
	Exponent     int       `json:"exponent,omitzero"`
	Thumbprint   string    `json:"thumbprint,omitempty"`
	FetchedAt    time.Time `json:"fetchedAt,omitzero"`
	UnknownSince time.Time `json:"unknownSince,omitzero"` // when the service first called it unknown
	ExpiresAt    time.Time `json:"expiresAt,omitzero"`
	// With an id:
	URL    string `json:"url,omitempty"`
	Answer string `json:"answer,omitempty"` // of the URL, now
}

// allKeys shows every key, and what the redrive function reports. If it does not, the keys are shown.
func (p *program) allKeys(ctx context.Context, d *stack, revoked clientcert.Revocations) error {
	records, err := d.keys.Records(ctx)
	if err != nil {
		return err
	}
	shown := struct {
		Keys         []cachedKey          `json:"keys"`
		Certificates *intake.Certificates `json:"certificates"`
	}{Keys: []cachedKey{}}
	for _, r := range records {
		k := shownKey(r, p.Now())
		k.mark(revoked)
		shown.Keys = append(shown.Keys, k)
	}
	known := func(k cachedKey) int { return min(1, len(k.Thumbprint)+len(k.Cause)) }
	slices.SortFunc(shown.Keys, func(a, b cachedKey) int { // keys before unknown ids, and the latest first
		return cmp.Or(known(b)-known(a), b.FetchedAt.Compare(a.FetchedAt), cmp.Compare(a.KeyID, b.KeyID))
	})
	a, failed := d.redrive(ctx, intake.Request{Certificates: true})
	if failed == nil && a.Certificates == nil {
		failed = errors.New("the redrive function did not report certificates")
	}
	shown.Certificates = cmp.Or(a.Certificates, &intake.Certificates{})
	if p.JSON {
		err = p.PrintJSON(shown)
	} else {
		err = errors.Join(cli.List(p.Program, shown.Keys, "keyId", "state", "thumbprint", "fetchedAt", "unknownSince"),
			p.Show(shown.Certificates))
	}
	c := shown.Certificates
	return attention(cmp.Or(err, failed), len(c.CAs) > 0 && c.DaysLeft < settings.MinTrustDays)
}

func (p *program) key(ctx context.Context, s *stack, id string, conf settings.Function) error {
	canonical, _ := payment.KeyID(id)
	r, err := s.keys.Get(ctx, canonical)
	if err != nil {
		return err
	}
	shown := cachedKey{State: "absent"}
	if r != nil {
		shown = shownKey(*r, p.Now())
	}
	shown.KeyID = id
	shown.mark(conf.Revoked)
	if conf.KeyService != nil { // otherwise webhooks need no key
		service, err := s.KeyService(conf)
		if err != nil {
			return err
		}
		key, _, err := service.Fetch(ctx, id)
		shown.URL = conf.KeyService.JoinPath("v1", "keys", id).String()
		switch {
		case err != nil:
			shown.Answer = awsenv.Cause(err)
		case keys.Thumbprint(key) == shown.Thumbprint:
			shown.Answer = "the same key"
		default:
			shown.Answer = "the key with the thumbprint " + keys.Thumbprint(key)
		}
	}
	return attention(p.Show(shown), shown.State != "cached" && shown.State != "stale")
}

// mark sets the state of a key that is revoked, cached or not.
func (k *cachedKey) mark(revoked clientcert.Revocations) {
	if revoked.Has(k.KeyID) || revoked.Has(k.Thumbprint) {
		k.State = "revoked"
	}
}

func shownKey(r keys.Record, now time.Time) cachedKey {
	shown := cachedKey{
		KeyID:        cmp.Or(r.SentAs, r.ID),
		State:        "cached",
		FetchedAt:    r.FetchedAt,
		UnknownSince: r.UnknownSince,
		ExpiresAt:    r.ExpiresAt,
	}
	key, refused := r.Key()
	if key != nil {
		shown.Bits, shown.Exponent, shown.Thumbprint = key.N.BitLen(), key.E, keys.Thumbprint(key)
	}
	withdrawn := !r.UnknownSince.IsZero()
	switch {
	case refused != nil:
		shown.State, shown.Cause = "rejected", awsenv.Cause(refused)
	case !now.Before(r.ExpiresAt):
		shown.State = "expired"
	case key == nil && withdrawn:
		shown.State = "removed"
	case key == nil:
		shown.State = "unknown"
	case withdrawn:
		shown.State = "withdrawn"
	case now.Sub(r.FetchedAt) >= keys.Freshness:
		shown.State = "stale"
	}
	return shown
}
