package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/shared/keys"
	"payhook.example/shared/settings"
)

func (p *program) keyCommand() *cobra.Command {
	var drop bool
	cmd := &cobra.Command{
		Use:   "key ID",
		Short: "Show a cached key of the payment service, or drop it",
		Long: fmt.Sprintf(`Shows one of the payment service's keys as the functions share it: its size, when
the service was asked for it, and its thumbprint (RFC 7638, SHA-256), with which the
service can tell whether it is theirs. The ID is written as in the log.

  cached     the functions use it, also after keyFreshness (%s unless set otherwise) if
             it cannot be fetched again, until expiresAt
  withdrawn  the service calls it unknown; the functions use it until that has lasted
             for 5 minutes
  removed    the service no longer has it; webhooks signed with it are answered 401
  unknown    the service did not know the id
  rejected   the functions do not use it, for the cause, and ask the service
  expired    the functions no longer use it, and ask the service
  absent     not cached: the functions ask the service

With --drop, the key is deleted from the table, so that the service is asked again.
A running function keeps its own copy for up to keyFreshness, and for up to
keyMaxAge (%s) while the service does not answer. A deployment with any change to
the webhook function restarts it.

Status 1: the state is not cached, or with --drop, nothing was dropped.`,
			settings.Named("keyFreshness").Default, settings.Named("keyMaxAge").Default),
		Example: "  payhook key 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d\n  payhook key " +
			"5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d --drop",
		Args: oneUUID,
		RunE: p.on(func(ctx context.Context, s *stack, args []string) error { return p.key(ctx, s, args[0], drop) }),
	}
	cmd.Flags().BoolVar(&drop, "drop", false, "delete the key from the table")
	return cmd
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
	Dropped      bool      `json:"dropped"`
}

func (p *program) key(ctx context.Context, d *stack, id string, drop bool) error {
	shown := cachedKey{KeyID: id, State: "absent"}
	cached, found, err := d.keys.Find(ctx, id)
	if found {
		shown = shownKey(id, cached, p.Now())
	}
	if found && drop {
		err = d.keys.Drop(ctx, id)
		shown.Dropped = err == nil
	}
	if err != nil {
		return err
	}
	wrong := shown.State != "cached"
	if drop {
		fmt.Fprintln(p.Err, "a running function keeps its own copy of a key until it is deployed again, or keyMaxAge")
		wrong = !shown.Dropped
	}
	return attention(p.Show(shown, "keyId", id, "state", shown.State, "cause", shown.Cause, "bits", shown.Bits,
		"exponent", shown.Exponent, "thumbprint", shown.Thumbprint, "fetchedAt", shown.FetchedAt,
		"unknownSince", shown.UnknownSince, "expiresAt", shown.ExpiresAt, "dropped", shown.Dropped), wrong)
}

func shownKey(id string, cached keys.Cached, now time.Time) cachedKey {
	shown := cachedKey{KeyID: id, State: "cached", FetchedAt: cached.FetchedAt, UnknownSince: cached.UnknownSince,
		ExpiresAt: cached.ExpiresAt}
	if cached.Key != nil {
		shown.Bits, shown.Exponent, shown.Thumbprint = cached.Key.N.BitLen(), cached.Key.E, keys.Thumbprint(cached.Key)
	}
	withdrawn := !cached.UnknownSince.IsZero()
	switch {
	case cached.Refused != nil:
		shown.State, shown.Cause = "rejected", cached.Refused.Error()
	case !now.Before(cached.ExpiresAt):
		shown.State = "expired"
	case cached.Key == nil && withdrawn:
		shown.State = "removed"
	case cached.Key == nil:
		shown.State = "unknown"
	case withdrawn:
		shown.State = "withdrawn"
	}
	return shown
}
