package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/keys"
	"payhook.example/shared/settings"
)

func (p *program) keyCommand() *cobra.Command {
	var drop bool
	cmd := &cobra.Command{
		Use:   "key ID",
		Short: "Show a cached key of the payment service, or drop it",
		Long: `Shows one of the payment service's keys as the functions share it: its size, when
the service was asked for it, and its thumbprint (RFC 7638, SHA-256), with which the
service's operator can tell whether it is theirs.

With --drop, the key is deleted from the table, so that the service is asked again.
` + ownCopies + `

Status 1: the key is not cached, too old or rejected, or the service did not know
it when it was last asked.

With --json, one document: keyId, state (cached, withdrawn, removed, unknown,
refused, expired, absent), stale, cause, bits, exponent, thumbprint, fetchedAt,
ageSeconds, unknownSince, expiresAt, dropped.`,
		Example: "  payhook key 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d\n  payhook key " +
			"5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d --drop",
		Args: oneUUID,
		RunE: p.on(func(ctx context.Context, s *stack, args []string) error { return p.key(ctx, s, args[0], drop) }),
	}
	cmd.Flags().BoolVar(&drop, "drop", false, "delete the key from the table")
	return cmd
}

// ownCopies says what dropping a key does not do.
var ownCopies = fmt.Sprintf(`A running function keeps its own copy for up to
keyFreshness (%s unless set otherwise), and for up to keyMaxAge (%s) while the
service does not answer. A deployment with any change to the webhook function
restarts it.`, settings.KeyFreshness.Default, settings.KeyMaxAge.Default)

// cachedKey is what is shown of a key.
type cachedKey struct {
	KeyID string `json:"keyId"`
	State string `json:"state"`
	// Stale: the functions ask the service before they use it, and use it although
	// the service does not give it.
	Stale      bool      `json:"stale"`
	Cause      string    `json:"cause,omitempty"`
	Bits       int       `json:"bits,omitzero"`
	Exponent   int       `json:"exponent,omitzero"`
	Thumbprint string    `json:"thumbprint,omitempty"`
	FetchedAt  time.Time `json:"fetchedAt,omitzero"`
	AgeSeconds *float64  `json:"ageSeconds,omitempty"`
	// UnknownSince is when the service first called the key unknown.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
	ExpiresAt    time.Time `json:"expiresAt,omitzero"`
	Dropped      bool      `json:"dropped"`
}

func (p *program) key(ctx context.Context, d *stack, keyID string, drop bool) error {
	shown := cachedKey{KeyID: keyID, State: "absent"}
	// A key is cached under its id as the webhooks write it.
	ids := []string{keyID, strings.ToLower(keyID), strings.ToUpper(keyID)}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			continue
		}
		cached, ok, err := d.keys.Find(ctx, id)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if shown.State == "absent" {
			shown = p.shown(id, cached)
		}
		if drop {
			if err := d.keys.Drop(ctx, id); err != nil {
				return err
			}
			shown.Dropped = true
		}
	}
	err := p.print(shown, func(t cli.Fields) {
		shown.write(t, p.Now())
		switch {
		case shown.Dropped:
			fmt.Fprintf(t, "\ndropped. %s\n", ownCopies)
		case drop:
			fmt.Fprintln(t, "\nnothing was cached, so nothing was dropped")
		}
	})
	return attention(err, shown.State != "cached" && !drop)
}

func (p *program) shown(id string, cached keys.Cached) cachedKey {
	now := p.Now()
	age := cli.Seconds(now.Sub(cached.FetchedAt))
	shown := cachedKey{KeyID: id, FetchedAt: cached.FetchedAt, AgeSeconds: &age, UnknownSince: cached.UnknownSince,
		ExpiresAt: cached.ExpiresAt}
	withdrawn := !cached.UnknownSince.IsZero()
	if cached.Key != nil {
		shown.Bits, shown.Exponent, shown.Thumbprint = cached.Key.N.BitLen(), cached.Key.E, keys.Thumbprint(cached.Key)
	}
	switch {
	case cached.Refused != nil:
		shown.State, shown.Cause = "refused", cached.Refused.Error()
	case !now.Before(cached.ExpiresAt):
		shown.State = "expired"
	case cached.Key == nil && withdrawn:
		shown.State = "removed"
	case cached.Key == nil:
		shown.State = "unknown"
	case withdrawn:
		shown.State, shown.Stale = "withdrawn", true
	default:
		shown.State, shown.Stale = "cached", now.Sub(cached.FetchedAt) >= defaultFreshness
	}
	return shown
}

// defaultFreshness is when a key is stale, if keyFreshness is not set. The table
// does not hold the setting.
var defaultFreshness = func() time.Duration {
	d, err := cli.ParseDuration(settings.KeyFreshness.Default)
	if err != nil {
		panic(err) // a test reads every default
	}
	return d
}()

// stateTexts say what a state means for the next webhook.
var stateTexts = map[string]string{
	"cached": "cached",
	"withdrawn": fmt.Sprintf("withdrawn: the service calls it unknown; the functions use it until that has lasted "+
		"for keyUnknownGrace (%s unless set otherwise)", settings.KeyUnknownGrace.Default),
	"removed": "removed: the service gave it before and no longer does; webhooks signed with it are answered 401",
	"unknown": "unknown: the service did not know the id",
	"refused": "rejected: the functions do not use it, and ask the service",
	"expired": "expired: the functions no longer use it, and ask the service",
	"absent":  "not cached: the functions ask the service",
}

func (k cachedKey) write(t cli.Fields, now time.Time) {
	t.Line("key", "%s", k.KeyID)
	t.Line("state", "%s", stateTexts[k.State])
	if k.Cause != "" {
		t.Line("cause", "%s", cli.Plain(k.Cause))
	}
	if k.Bits > 0 {
		t.Line("size", "%d bits, exponent %d", k.Bits, k.Exponent)
		t.Line("thumbprint", "%s", k.Thumbprint)
	}
	if !k.UnknownSince.IsZero() {
		t.Line("unknown since", "%s", cli.Ago(k.UnknownSince, now))
	}
	switch {
	case k.FetchedAt.IsZero():
	case k.State == "removed":
		t.Line("last asked", "%s", cli.Ago(k.FetchedAt, now))
	default:
		stale := ""
		if k.Stale && k.State == "cached" {
			stale = fmt.Sprintf(", stale: older than keyFreshness (%s unless set otherwise), so the next webhook "+
				"fetches it again", settings.KeyFreshness.Default)
		}
		t.Line("fetched", "%s%s", cli.Ago(k.FetchedAt, now), stale)
		t.Line("used until", "%s, if it cannot be fetched again", cli.Ago(k.ExpiresAt, now))
	}
}
