package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/keys"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
)

var keyUsage = `Usage: operator key ID [--drop]

One of the payment service's keys as the functions share it: its size, when the
service was asked for it, and its thumbprint (RFC 7638, SHA-256), by which the
service's operator can tell whether it is theirs.

Exit status 1: it is not cached, too old, refused, or the service did not know it
when it was last asked.

  --drop  delete it from the table, so that the service is asked again. ` + keepOwnCopy + `
  --json  one document: keyId, state (cached, withdrawn, removed, unknown,
          refused, expired, absent), stale, cause, bits, exponent, thumbprint,
          fetchedAt, ageSeconds, unknownSince, expiresAt, dropped
`

// keepOwnCopy is what dropping a key does not do.
var keepOwnCopy = fmt.Sprintf(`A
          function that runs keeps a copy of its own for up to keyFreshness (%s
          unless set otherwise), and for up to keyMaxAge (%s) while the service
          does not answer; deploying with any change to the webhook function
          starts it anew.`, settings.KeyFreshness.Default, settings.KeyMaxAge.Default)

func keyFlags(_ *program, o *options, f *flag.FlagSet) { f.BoolVar(&o.drop, "drop", false, "") }

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

func (p *program) key(ctx context.Context, o *options, list []string) error {
	if !rfc9562.Valid(list[0]) {
		return usageError(fmt.Sprintf("%q is no key id: a UUID is wanted", list[0]))
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	shelf, err := d.keys()
	if err != nil {
		return err
	}
	// A key is cached under its id as the webhooks write it.
	ids := []string{list[0]}
	for _, id := range []string{strings.ToLower(list[0]), strings.ToUpper(list[0])} {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	shown := cachedKey{KeyID: list[0], State: "absent"}
	for _, id := range ids {
		cached, ok, err := shelf.Find(ctx, id)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if shown.State == "absent" {
			shown = p.shown(id, cached)
		}
		if o.drop {
			if err := shelf.Drop(ctx, id); err != nil {
				return err
			}
			shown.Dropped = true
		}
	}
	if err := p.printKey(shown, o); err != nil {
		return err
	}
	if shown.State != "cached" && !o.drop {
		return errPerson
	}
	return nil
}

func (p *program) shown(id string, cached keys.Cached) cachedKey {
	now := p.now()
	age := seconds(now.Sub(cached.FetchedAt))
	shown := cachedKey{KeyID: id, FetchedAt: cached.FetchedAt, AgeSeconds: &age, UnknownSince: cached.UnknownSince, ExpiresAt: cached.ExpiresAt}
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
	d, err := settings.ParseDuration(settings.KeyFreshness.Default)
	if err != nil {
		panic(err) // a test reads every default
	}
	return d
}()

// meanings say what a state means for the next webhook.
var meanings = map[string]string{
	"cached":    "cached",
	"withdrawn": fmt.Sprintf("withdrawn: the service calls it unknown; the functions use it until that has lasted for keyUnknownGrace (%s unless set otherwise)", settings.KeyUnknownGrace.Default),
	"removed":   "removed: the service gave it before and does not any more; webhooks signed with it are answered 401",
	"unknown":   "unknown: the service did not know the id",
	"refused":   "refused: the functions do not use it, and ask the service",
	"expired":   "expired: the functions do not use it any more, and ask the service",
	"absent":    "not cached: the functions ask the service",
}

func (p *program) printKey(k cachedKey, o *options) error {
	if o.json {
		return printJSON(p.out, k)
	}
	now := p.now()
	t := newSheet(p.out)
	t.line("key", "%s", k.KeyID)
	t.line("state", "%s", meanings[k.State])
	if k.Cause != "" {
		t.line("cause", "%s", plain(k.Cause))
	}
	if k.Bits > 0 {
		t.line("size", "%d bits, exponent %d", k.Bits, k.Exponent)
		t.line("thumbprint", "%s", k.Thumbprint)
	}
	if !k.UnknownSince.IsZero() {
		t.line("unknown since", "%s", ago(k.UnknownSince, now))
	}
	switch {
	case k.FetchedAt.IsZero():
	case k.State == "removed":
		t.line("last asked", "%s", ago(k.FetchedAt, now))
	default:
		stale := ""
		if k.Stale && k.State == "cached" {
			stale = fmt.Sprintf(", stale: older than keyFreshness (%s unless set otherwise), so the next webhook fetches it again", settings.KeyFreshness.Default)
		}
		t.line("fetched", "%s%s", ago(k.FetchedAt, now), stale)
		t.line("used until", "%s, if it can't be fetched again", ago(k.ExpiresAt, now))
	}
	if err := t.Flush(); err != nil || !o.drop {
		return err
	}
	if !k.Dropped {
		_, err := fmt.Fprintln(p.out, "\nthere was nothing to drop")
		return err
	}
	_, err := fmt.Fprintf(p.out, "\ndropped. %s\n", strings.Join(strings.Fields(keepOwnCopy), " "))
	return err
}
