package commands

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

type dropping struct {
	drop, force, yes bool
	reason           string
}

func (p *program) keysCommand() *cobra.Command {
	var d dropping
	cmd := &cobra.Command{
		Use:   "keys [ID]",
		Short: "Show the cached keys and the accepted CAs, or drop a key",
		Args: func(cmd *cobra.Command, args []string) error {
			_, isID := payment.KeyID(strings.Join(args, " ")) // also without hyphens
			switch {
			case !isID && (d.drop || len(args) > 0):
				return oneUUID("ID")(cmd, args)
			case d.drop && strings.TrimSpace(d.reason) == "":
				return errors.New("--reason is missing: say why the key is dropped")
			}
			return nil
		},
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			conf, err := s.deployed(ctx, "webhook")
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return p.allKeys(ctx, s, conf.Revoked)
			}
			return p.key(ctx, s, args[0], d, conf)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&d.drop, "drop", false, "delete the key from the table")
	f.StringVar(&d.reason, "reason", "", "with --drop: why, in your own `text`")
	f.BoolVar(&d.force, "force", false, "with --drop: also if the service does not return the key now")
	f.BoolVar(&d.yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

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
	URL     string     `json:"url,omitempty"`
	Answer  string     `json:"answer,omitempty"` // of the URL, now
	Next    string     `json:"next,omitempty"`   // what to do after it
	Dropped proof.Note `json:"dropped,omitzero"`
}

// allKeys shows every key, and what the redrive function reports. If it does not, the keys are shown.
func (p *program) allKeys(ctx context.Context, d *connected, revoked clientcert.Revocations) error {
	records, err := d.keys.Records(ctx)
	if err != nil {
		return err
	}
	shown := struct {
		Keys         []cachedKey        `json:"keys"`
		Certificates *wire.Certificates `json:"certificates"`
	}{Keys: []cachedKey{}}
	for _, r := range records {
		shown.Keys = append(shown.Keys, shownKey(cmp.Or(r.SentAs, r.ID), &r, revoked, p.Now()))
	}
	known := func(k cachedKey) int { return min(1, len(k.Thumbprint)) }
	slices.SortFunc(shown.Keys, func(a, b cachedKey) int { // keys before unknown ids, and the latest first
		return cmp.Or(known(b)-known(a), b.FetchedAt.Compare(a.FetchedAt), cmp.Compare(a.KeyID, b.KeyID))
	})
	a, failed := d.redrive(ctx, wire.RedriveRequest{Certificates: true})
	if failed == nil && a.Certificates == nil {
		failed = errors.New("the redrive function did not report certificates")
	}
	shown.Certificates = cmp.Or(a.Certificates, &wire.Certificates{})
	if p.JSON {
		err = p.PrintJSON(shown)
	} else {
		err = cli.List(p.Program, shown.Keys, "keyId", "state", "thumbprint", "fetchedAt", "unknownSince")
		if len(shown.Keys) > 0 && failed == nil {
			fmt.Fprintln(p.Out)
		}
		err = errors.Join(err, p.Show(shown.Certificates))
	}
	c := shown.Certificates
	return attention(cmp.Or(err, failed), len(c.CAs) > 0 && c.DaysLeft < settings.MinTrustDays)
}

func (p *program) key(ctx context.Context, s *connected, id string, d dropping, conf settings.Config) error {
	canonical, _ := payment.KeyID(id)
	r, err := s.keys.Get(ctx, canonical)
	if err != nil {
		return err
	}
	shown := shownKey(id, r, conf.Revoked, p.Now())
	returned := false
	if conf.KeyEndpoint != nil { // otherwise webhooks need no key
		var key *rsa.PublicKey
		service, err := s.keyEndpoint(ctx, conf)
		if err == nil {
			key, _, err = service.Fetch(ctx, id)
		}
		shown.URL = conf.KeyEndpoint.JoinPath("v1", "keys", id).String()
		status, _ := errors.AsType[keys.StatusError](err)
		switch returned = err == nil; {
		case status.Status == http.StatusUnauthorized && conf.KeyEndpointAuth == settings.BearerToken:
			shown.Answer = "401: the service does not accept the token"
			// alarms.txt and events/README.md have this command as well.
			shown.Next = `refresh the token: echo '{"refresh":true}' | ` + p.AWS("lambda invoke --function-name "+
				stack.Quote(s.Functions["token"])+" --payload fileb:///dev/stdin /dev/stdout")
		case err != nil:
			shown.Answer = lambdaruntime.Cause(err)
		case keys.Thumbprint(key) == shown.Thumbprint:
			shown.Answer = "the same key"
		default:
			shown.Answer = "the key with the thumbprint " + keys.Thumbprint(key)
		}
	}
	if !d.drop || r == nil {
		usable := shown.State == string(keys.Fresh) || shown.State == string(keys.Stale)
		return attention(p.Show(shown), d.drop || !usable)
	}
	if !returned && !d.force {
		return cli.Usage("%s answers: %s. Webhooks with this key would be rejected. Nothing was dropped; "+
			"--force drops it", shown.URL, shown.Answer)
	}
	if !d.yes {
		if err := p.Confirm(ctx, fmt.Sprintf("Drop the key %s in %s?", id, s.Name)); err != nil {
			return err
		}
	}
	if err := s.keys.Delete(ctx, canonical); err != nil {
		return err
	}
	shown.Dropped = proof.Note{By: s.caller(ctx), At: p.Now().UTC(), Reason: d.reason}
	fmt.Fprintln(p.Err, "a running function keeps its own copy of a key until it is deployed again, or keyMaxAge, and "+
		"can store it again")
	return p.Show(shown)
}

// shownKey returns what is shown of a key and its record; nil for none.
func shownKey(id string, r *keys.Record, revoked clientcert.Revocations, now time.Time) cachedKey {
	r = cmp.Or(r, &keys.Record{})
	shown := cachedKey{KeyID: id, State: "absent", FetchedAt: r.FetchedAt, UnknownSince: r.UnknownSince,
		ExpiresAt: r.ExpiresAt}
	key, refused := r.Key()
	if key != nil {
		shown.Bits, shown.Exponent, shown.Thumbprint = key.N.BitLen(), key.E, keys.Thumbprint(key)
	}
	switch state := r.State(now, keys.Freshness); {
	case revoked.Has(id), revoked.Has(shown.Thumbprint):
		shown.State = "revoked"
	case state == keys.None:
	case refused != nil:
		shown.State, shown.Cause = string(keys.Refused), lambdaruntime.Cause(refused)
	case !now.Before(r.ExpiresAt):
		shown.State = "expired"
	default:
		shown.State = string(state)
	}
	return shown
}
