package keys

import (
	"cmp"
	"crypto/rsa"
	"slices"
	"time"
)

// State is what is known of a key id. The package comment has the table of what each answer of the service does to it.
type State string

// The states. Those of an id without a key are answers of the service as well; Fresh is the answer with the key.
const (
	Fresh       State = "fresh"     // the key is younger than Options.Freshness
	Stale       State = "stale"     // it is older, and is used until it can be fetched again
	Withdrawn   State = "withdrawn" // the service no longer knows it, and it is still used
	Removed     State = "removed"   // it was withdrawn for Options.UnknownGrace, and is not used
	Refused     State = "refused"   // the service returned a key that must not be used
	Unknown     State = "unknown"   // the service does not know the id
	Unavailable State = "unavailable"
	None        State = "" // nothing is known, or the service is being asked for the first time
)

// State returns the state at that time of a key that is fresh for so long.
func (r *Record) State(now time.Time, freshness time.Duration) State {
	switch {
	case r.JWK == "" && r.Answer == Unknown && !r.UnknownSince.IsZero():
		return Removed
	case r.JWK == "":
		return r.Answer
	case !r.UnknownSince.IsZero():
		return Withdrawn
	case now.Sub(r.FetchedAt) >= freshness:
		return Stale
	}
	return Fresh
}

const (
	askAgain      = time.Minute      // how long nobody asks for a key that was returned
	pause         = 10 * time.Second // how long nobody asks for what was not returned
	maxRetryAfter = time.Minute      // limits the pause that the service asks for: nobody sends a webhook again
	kept          = time.Hour        // how long a record without a key is kept
)

// reply is an answer of the service: Fresh with its key, Unknown, Refused or Unavailable.
type reply struct {
	answer     State
	key        *rsa.PublicKey
	sentAs     string    // the id in the request
	asked, at  time.Time // when the request was sent, and when the answer came
	retryAfter time.Duration
}

// after returns the record after an answer, without its new Version: the table in the package comment.
func (r Record) after(a reply, o *Options) Record {
	if a.answer == Fresh {
		// The age starts before the request, because the answer can be that old.
		return Record{ID: r.ID, SentAs: a.sentAs, JWK: string(FormatJWK(a.sentAs, a.key)), FetchedAt: a.asked,
			AskedAs: a.sentAs, Answer: Fresh, LeasedUntil: a.asked.Add(min(askAgain, o.Freshness/3)),
			ExpiresAt: a.asked.Add(o.MaxAge)}
	}
	failures := 1
	if r.AskedAs == a.sentAs && a.asked.Sub(r.LeasedUntil) < maxRetryAfter {
		failures += max(0, min(r.Failures, 8))
	}
	r.AskedAs, r.Answer, r.Failures, r.LeasedUntil = a.sentAs, a.answer, 0, a.at.Add(pause)
	switch retryAfter := min(a.retryAfter, maxRetryAfter); {
	case a.answer == Unavailable && r.JWK != "":
		r.LeasedUntil = a.at.Add(max(pause, retryAfter))
	case a.answer == Unavailable:
		r.Failures = failures
		r.LeasedUntil = a.at.Add(cmp.Or(retryAfter, min(pause, time.Duration(1<<r.Failures/4)*time.Second)))
	case r.JWK != "":
		if r.UnknownSince.IsZero() {
			r.UnknownSince = a.at // not before the answer: Lambda can freeze the environment during the call
		}
		if a.answer == Refused || a.asked.Sub(r.UnknownSince) >= o.UnknownGrace {
			r.SentAs, r.JWK, r.FetchedAt = "", "", a.asked
		}
	}
	if r.JWK == "" { // while another cache can have a copy, the record says that the key was removed
		r.ExpiresAt = latest(r.LeasedUntil.Add(kept), r.UnknownSince.Add(o.MaxAge))
	}
	return r
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
