package keys

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// play plays a history of one key. Each line is one step:
//
//	AFTER SERVICE TABLE CACHE RESULT
//
// AFTER is the time that passes before, SERVICE what the service answers from then on: "key", "key2", a status with a
// Retry-After, "page" for a page with status 200, "empty" for a JWK without n, "refused" for one that must not be used,
// and before it "slow-" if the call takes two seconds. TABLE says which calls of the table fail in this step: "down"
// for all, "..x" for the third one. A dot stands for none and no change. CACHE is a cache that looks the key up,
// "new" for another one each time: by the spelling with the number after a slash, or with a plus sign again after it
// has found the key. The RESULT is the key or the error, where it was found, and the number of requests; then what is
// reported besides.
//
// Other lines are "drop", which deletes the record, and "stored" with what it must be.
func (w *world) play(history string) {
	w.takes, w.table.takes = 0, 0
	caches, last := map[string]*Cache{}, map[string]Found{}
	begin, mode := time.Now(), "key"
	w.keys[id] = &generated(0).PublicKey
	w.answer = func(spelling string) string {
		mode, slow := strings.CutPrefix(mode, "slow-")
		if slow {
			time.Sleep(2 * time.Second)
		}
		jwk := string(FormatJWK(spelling, &generated(0).PublicKey))
		switch {
		case mode == "page":
			return "<html>"
		case spelling != id:
			return "404"
		case strings.HasPrefix(mode, "key"):
			return ""
		case mode == "empty":
			return strings.Replace(jwk, `"n":"`, `"x":"`, 1)
		case mode == "refused":
			return strings.Replace(jwk, "RS256", "RS512", 1)
		}
		return strings.Replace(mode, "_", " ", 1)
	}
	for line := range strings.Lines(history) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		var got string
		switch {
		case len(words) == 0:
			continue
		case words[0] == "drop":
			_ = w.Delete(w.Context(), itemID)
			continue
		case words[0] == "stored":
			got = "stored " + w.stored(begin)
		default:
			after, err := time.ParseDuration(words[0])
			if err != nil {
				w.Fatal(err)
			}
			time.Sleep(after)
			if words[1] != "." {
				mode = words[1]
				w.keys[id] = &generated(map[string]int{"key2": 1}[strings.TrimPrefix(mode, "slow-")]).PublicKey
			}
			w.table.fail(words[2])
			cache, again := strings.CutSuffix(words[3], "+")
			cache, spelling, _ := strings.Cut(cache, "/")
			number, _ := strconv.Atoi(spelling)
			if caches[cache] == nil || cache == "new" {
				caches[cache] = w.cache()
				caches[cache].early = 0
			}
			calls := w.calls.Load()
			var found Found
			if again {
				found, err = caches[cache].Refetch(w.Context(), spellings[number], last[cache], sender)
			} else {
				found, err = caches[cache].Lookup(w.Context(), spellings[number], sender)
				last[cache] = found
			}
			found.Save(w.Context())
			w.table.fail("")
			got = strings.Join(append(words[:4:4], result(found, err, w.calls.Load()-calls)), " ")
		}
		if want := strings.Join(words, " "); got != want {
			w.Errorf("%s\n%s", got, want)
		}
	}
}

// result describes the result of a lookup.
func result(found Found, err error, calls int32) string {
	key := "none"
	_, refused := errors.AsType[*PolicyError](err)
	switch {
	case refused:
		key = "refused"
	case errors.Is(err, ErrUnknown):
		key = "unknown"
	case errors.Is(err, ErrUnavailable):
		key = "unavailable"
	case err != nil:
		key = err.Error()
	case found.Key == nil:
	case generated(0).PublicKey.Equal(found.Key):
		key = "key"
	case generated(1).PublicKey.Equal(found.Key):
		key = "key2"
	}
	if err != nil && found.Key != nil {
		key += "-with-a-key"
	}
	text := fmt.Sprintf("%s %s %d", key, cmp.Or(found.Source, "-"), calls)
	if found.Withdrawn {
		text += " withdrawn"
	}
	if found.TableFailed {
		text += " table-failed"
	}
	return strings.TrimSpace(text + " " + found.UnexpectedType)
}

// stored describes the record of the key.
func (w *world) stored(begin time.Time) string {
	r, err := w.Memory.Get(w.Context(), itemID)
	if r == nil || err != nil {
		return fmt.Sprint("nothing ", err)
	}
	text := string(r.State(time.Now(), time.Hour))
	if !r.UnknownSince.IsZero() {
		text += fmt.Sprint(" since ", r.UnknownSince.Sub(begin).Round(time.Second))
	}
	return text + fmt.Sprint(" until ", r.ExpiresAt.Sub(begin).Round(time.Second))
}

func TestHistoriesOfAKey(t *testing.T) {
	for name, history := range map[string]string{
		"one request for all caches": `
			0  key . a   key endpoint 1
			0  .   . a   key memory 0
			0  .   . b   key table 0
			0  .   . b   key memory 0
			1h .   . b   key endpoint 1 // no copy is fresh any more
			0  .   . a   key table 0`,
		"used for a day while the service is down": `
			0   key . a   key endpoint 1
			2h  503 . a   key stale 1
			0   .   . a   key stale 0 // within the pause
			0   .   . new key stale 0
			10s .   . a   key stale 1
			10s .   . new key stale 1
			21h59m29.999s . . a key stale 1
			10.001s . . a   unavailable endpoint 1
			0   .   . new unavailable endpoint 1 // the first failure without a key has no pause
			0   .   . a   unavailable table 0 // the second one has a second
			0   .   . a   unavailable memory 0
			1s  key . a   key endpoint 1`,
		"unknown for ten seconds": `
			0 404 . a   unknown endpoint 1
			0 .   . a   unknown memory 0
			0 .   . new unknown table 0
			stored unknown until 1h0m10s
			9.999s key . a unknown memory 0
			1ms .   . a   key endpoint 1`,
		"rotated under its id": `
			0  key  . a  key endpoint 1
			0  .    . b  key table 0
			0  .    . c  key table 0
			0  key2 . a+ none memory 0 // it was returned less than a minute ago
			1m .    . a+ key2 endpoint 1
			0  .    . b+ key2 table 0
			0  .    . a  key2 memory 0
			0  .    . a+ none memory 0
			1m .    . c+ key2 table 0
			0  .    . c  key2 memory 0
			0  .    . c+ none endpoint 1 // the same key
			0  .    . a+ none table 0 // another cache has just fetched it
			1m 503  . a  key2 memory 0
			0  .    . a+ unavailable endpoint 1 // which can have another one
			0  .    . a+ unavailable memory 0 // forged signatures cause no further request
			0  .    . b  key2 memory 0
			0  .    . b+ unavailable table 0
			0  .    . a  key2 memory 0
			10s 404 . a+ none endpoint 1 withdrawn`,

		"repeated 404 without the table": `
			0   key down a key endpoint 1 table-failed
			1h  410 down a key stale 1 withdrawn table-failed
			4m59.999s . down a key stale 1 withdrawn table-failed
			10s .   down a unknown endpoint 1 withdrawn table-failed
			0   .   down a unknown memory 0 withdrawn`,
		"all caches share the grace": `
			0   key . a    key endpoint 1
			0   .   . b    key table 0
			0   .   . idle key table 0
			1h  410 . a    key stale 1 withdrawn
			0   .   . b    key stale 0 withdrawn // another cache has just asked
			10s .   . b    key stale 1 withdrawn
			4m50s . . new  unknown endpoint 1 withdrawn
			0   .   . a    unknown table 0 withdrawn
			2m  503 . idle unavailable endpoint 1 withdrawn // neither is a copy that was not used in between
			10h 410 . new  unknown endpoint 1 withdrawn
			stored removed since 1h0m0s until 25h0m0s // while a copy can exist`,
		"the grace starts at the answer": `
			0   key . a   key endpoint 1
			1h  slow-404 . a key stale 1 withdrawn
			stored withdrawn since 1h0m2s until 24h0m0s
			0   404 . new key stale 0 withdrawn
			4m59.999s . . new key stale 1 withdrawn
			10s .   . new unknown endpoint 1 withdrawn`,
		"dropped": `
			0  key . a   key endpoint 1
			drop
			0  .   . a   key memory 0
			0  .   . new key endpoint 1`,
		"each call of the table fails": `
			0   key x    new key endpoint 1 table-failed
			0   .   .x   new key endpoint 1 table-failed
			drop
			0   .   ...x a   key endpoint 1 table-failed
			3s  .   .    new key endpoint 1 // the lease has ended
			1h  .   x    a   key endpoint 1 table-failed
			1h  .   .x   a   key endpoint 1 table-failed
			1h  .   ..x  a   key endpoint 1 table-failed
			1h  503 x    a   key stale 1 table-failed
			10s .   .x   a   key stale 1 table-failed
			10s 404 ..x  a   key stale 1 withdrawn table-failed`,

		"refused": `
			0  key . a   key endpoint 1
			0  .   . b   key table 0
			1h refused . a refused endpoint 1 withdrawn
			0  .   . a   refused memory 0 withdrawn
			0  .   . b   refused table 0 withdrawn
			stored refused since 1h0m0s until 25h0m0s
			10s .  . b   refused endpoint 1 withdrawn
			10s 410 . a  unknown endpoint 1 withdrawn
			stored removed since 1h0m0s until 25h0m0s
			10s key . b  key endpoint 1
			0  .   . new key table 0`,
		// Anyone can make a cache ask the service, with a forged signature that names the id of a real key.
		"an answer that is not the JWK": `
			0   page . a unavailable endpoint 1 text/html
			0   key  . a   key endpoint 1
			0   .    . b   key table 0
			1m  page . a+  unavailable endpoint 1 text/html
			0   .    . a   key memory 0
			1h  empty . a   key stale 1
			0   .    . b   key stale 0
			10s page . new key stale 1 text/html
			24h .    . a   unavailable endpoint 1 text/html
			0   key  . a   key endpoint 1`,

		// The service knows one spelling only. Anyone can send others.
		"other spellings": `
			0   key . a/1  unknown endpoint 1
			0   .   . a/2  unknown endpoint 1
			0   .   . a/2  unknown memory 0
			0   .   . b/2  unknown table 0
			0   .   . b    key endpoint 1
			0   .   . a/2  unknown memory 0
			10s .   . a/2  key table 0
			1m  .   . a/1+ none endpoint 1
			1h  .   . b/2  key endpoint 1 // in the spelling that the service knows
			5m  .   . new/1 key table 0
			25h .   . a/1  unknown endpoint 1 // nothing is cached any more
			0   .   . new  key endpoint 1
			0   .   . a    key table 0`,
	} {
		t.Run(name, func(t *testing.T) { run(t, 0, func(w *world) { w.play(history) }) })
	}
}
