package keys

import "testing"

func TestHistoriesOfAKey(t *testing.T) {
	for name, history := range map[string]string{
		"one fetch for all functions": `
			0  key . a   key origin 1
			0  .   . a   key memory 0
			0  .   . b   key table 0
			0  .   . b   key memory 0
			1h .   . b   key origin 1 // no copy is fresh any more
			0  .   . a   key table 0`,
		"used for a day while the service is down": `
			0   key . a   key origin 1
			2h  503 . a   key stale 1
			0   .   . a   key stale 0 // within the pause
			10s .   . a   key stale 1
			0   .   . new key stale 1 // from the table
			21h59m49.999s . . a key stale 1
			1ms .   . a   unavailable origin 1
			0   .   . new unavailable origin 1
			0   key . a   key origin 1`,
		"unknown for a minute": `
			0 404 . a   unknown origin 1
			0 .   . a   unknown memory 0
			0 .   . new unknown table 0
			stored <nil> until 1m0s
			59.999s key . a unknown memory 0
			1ms .   . a   key origin 1`,
		"without the table": `
			0  key down a   key origin 1 table-failed
			0  .   down a   key memory 0
			2h .   down a   key origin 1 table-failed
			2h .   .    a   key origin 1
			0  .   .    new key table 0`,
		"another content type": `
			0   200        . a unavailable origin 1 text/html
			0  key-as-html . a key origin 1 text/html
			1h  200        . a key stale 1 text/html`,
		"rotated under its id": `
			0  key  . a  key origin 1
			0  .    . b  key table 0
			0  .    . c  key table 0
			0  key2 . a+ none - 0 // younger than a minute
			1m .    . a+ key2 origin 1
			0  .    . b+ key2 table 0
			0  .    . a  key2 memory 0
			0  .    . a+ none - 0
			1m .    . c+ key2 origin 1 // the record in the table is a minute old
			0  .    . a+ none table 0 // another function has just fetched it
			1m .    . a+ none origin 1 // the same key
			1m 503  . a  key2 memory 0
			0  .    . a+ none stale 1
			0  .    . a+ none - 0 // forged signatures cause no further call
			0  .    . a  key2 memory 0`,

		"one 404 removes nothing": `
			0   key . a   key origin 1
			1h  404 . a   key stale 1 withdrawn
			0   key . a   key stale 0 withdrawn // within the pause
			10s .   . a   key origin 1
			0   .   . new key table 0
			stored a key until 25h0m10s // the good answer has cleared the report
			20h 404 . new key stale 1 withdrawn // the first one again
			5m  503 . new key stale 1 withdrawn // which changes nothing
			0   key . new key origin 1`,
		"one 404 after a forged signature": `
			0   key . a  key origin 1
			1m  404 . a+ none stale 1 withdrawn
			0   .   . a  key stale 0 withdrawn
			0   .   . b  key stale 0 withdrawn // from the table
			10s key . a  key origin 1`,
		"repeated 404": `
			0   key . a key origin 1
			1h  410 . a key stale 1 withdrawn
			4m59.999s . . a key stale 1 withdrawn
			10s .   . a unknown origin 1 withdrawn
			0   .   . a unknown memory 0 withdrawn
			1m  503 . a unavailable origin 1 // the removed key is not used again
			0   key . a key origin 1`,
		"repeated 404 without the table": `
			0   key down a key origin 1 table-failed
			1h  410 down a key stale 1 withdrawn table-failed
			4m59.999s . down a key stale 1 withdrawn table-failed
			10s .   down a unknown origin 1 withdrawn table-failed
			0   .   down a unknown memory 0 withdrawn`,
		"all functions share the grace": `
			0   key . a    key origin 1
			0   .   . b    key table 0
			0   .   . idle key table 0
			1h  410 . a    key stale 1 withdrawn
			0   .   . b    key stale 0 withdrawn // the other function has just called
			0   .   . new  key stale 0 withdrawn
			10s .   . b    key stale 1 withdrawn
			0   .   . a    key stale 0 withdrawn
			4m50s . . new  unknown origin 1 withdrawn
			0   .   . a    unknown table 0 withdrawn
			2m  503 . idle unavailable origin 1 // neither is a copy that was not used in between
			10h 410 . new  unknown origin 1 withdrawn
			stored <nil> since 1h0m0s until 25h0m0s // while a copy can exist`,
		"the grace starts at the answer": `
			0   key . a   key origin 1
			1h  slow-404 . a key stale 1 withdrawn
			10s 404 . new key stale 1 withdrawn`,
		"a late 404 after another function has the key": `
			0  key . a   key origin 1
			1h 410 . a   key stale 1 withdrawn
			6m late-404 . a key table 2
			0  .   . a   key memory 0
			0  .   . new key table 0`,
		"a removal that a function cannot read": `
			0  key . idle key origin 1
			1h 410 . new  key stale 1 withdrawn
			5m .   . new  unknown origin 1 withdrawn
			0  .   x new  unknown origin 1 table-failed
			2m 503 . idle unavailable origin 1`,
		"a copy that is newer than its removal": `
			0  key .   a key origin 1
			1h 410 .   a key stale 1 withdrawn
			5m .   .   a unknown origin 1 withdrawn
			1m key ..x a key origin 1 table-failed // the write
			1h 503 .   a key stale 1`,
		"a report of an older key": `
			0  key  .  a key origin 1
			1h 410  .  a key stale 1 withdrawn
			1m key2 .x a key2 origin 1 table-failed // the write
			1h 410  .  a key2 stale 1 withdrawn
			5m .    .  a unknown origin 1 withdrawn`,
		"a copy that is newer than the table": `
			0  key  .  a key origin 1
			1h key2 .x a key2 origin 1 table-failed // the write
			1h 503  .  a key2 stale 1`,
		"a key that the table never had": `
			0  key down a   key origin 1 table-failed
			1h 404 .    new unknown origin 1 // which says nothing about a copy
			0  .   .    a   key stale 1 withdrawn`,
		"a key that the table no longer has": `
			0  key .    a   key origin 1
			1h 410 down a   key stale 1 withdrawn table-failed
			drop
			5m .   .    a   unknown origin 1 withdrawn
			0  .   .    new unknown table 0 withdrawn`,
		"dropped": `
			0  key . a   key origin 1
			drop
			0  .   . a   key memory 0
			0  .   . new key origin 1`,
		"a key that a function cannot read": `
			0 key . new key origin 1
			0 404 x new key stale 1 withdrawn table-failed`,
		"a report that a function cannot read": `
			0  key . a key origin 1
			0  .   . b key table 0
			1h 410 . a key stale 1 withdrawn
			5m .   x b unknown origin 1 withdrawn table-failed
			stored <nil> since 1h0m0s until 25h0m0s`,
		// One call more than there are does not fail.
		"each call of the table fails": `
			0   key x    new key origin 1 table-failed
			0   .   .x   new key origin 1 table-failed
			0   .   ..x  a   key origin 1 table-failed
			0   .   ...x new key origin 1
			0   .   .x   new key table 0
			1h  .   x    a   key origin 1 table-failed
			1h  .   .x   a   key origin 1 table-failed
			1h  .   ..x  a   key origin 1
			1m  .   x    a+  none origin 1 table-failed
			1m  .   .x   a+  none origin 1 table-failed
			1m  .   ..x  a+  none origin 1 table-failed
			1m  .   ...x a+  none origin 1
			1h  503 x    a   key stale 1 table-failed
			10s .   .x   a   key stale 1
			10s 404 .x   a   key stale 1 withdrawn table-failed
			10s .   ..x  a   key stale 1 withdrawn
			5m  .   ..x  a   unknown origin 1 withdrawn table-failed
			drop
			0   .   x    new unknown origin 1 table-failed
			drop
			0   .   .x   new unknown origin 1 table-failed
			drop
			0   .   ..x  new unknown origin 1 table-failed
			drop
			0   .   ...x new unknown origin 1`,
		"a report without the table": `
			0  key .    a   key origin 1
			1h 410 down a   key stale 1 withdrawn table-failed
			1m .   .    a   key stale 1 withdrawn
			4m .   .    new unknown origin 1 withdrawn`,

		"rejected by the policy": `
			0  key . a   key origin 1
			0  .   . b   key table 0
			1h rejected . a rejected origin 1 withdrawn
			0  .   . a   rejected memory 0 withdrawn
			0  .   . b   rejected table 0 withdrawn
			0  .   . new rejected table 0 withdrawn
			stored keys: key rejected: alg is not RS256 since 1h0m0s until 25h0m0s
			1m .   . b   rejected origin 1 withdrawn // it is asked for again, and stays withdrawn
			1m 410 . a   unknown origin 1 withdrawn
			stored <nil> since 1h0m0s until 25h0m0s
			1m key . b   key origin 1
			0  .   . new key table 0`,
		"rejected, and never used": `
			0   rejected . a rejected origin 1
			0   . . new rejected table 0
			stored keys: key rejected: alg is not RS256 until 1m0s
			59s . . a   rejected memory 0
			1s  . . a   rejected origin 1`,
		"rejected, without the table": `
			0   rejected down a rejected origin 1 table-failed
			59s . down a rejected memory 0
			1s  . down a rejected origin 1 table-failed`,
		// Anyone can make a function call the service, with a forged signature that names the id of a real key.
		"an answer that is not the JWK": `
			0   key  . a   key origin 1
			0   .    . b   key table 0
			1m   200 . a+  none stale 1 text/html
			0   .    . a   key memory 0
			1h  .    . a   key stale 1 text/html
			0   .    . b   key stale 1 text/html
			0   .    . new key stale 1 text/html
			24h .    . a   unavailable origin 1 text/html
			0   .    . a   unavailable origin 1 text/html // it is not cached as unknown
			0   key  . a   key origin 1`,

		// The service knows one spelling only. Anyone can send others.
		"other spellings": `
			0   key . a/1  unknown origin 1
			0   .   . a/2  unknown origin 1
			0   .   . b/3  unknown origin 1
			0   .   . b/3  unknown memory 0
			0   .   . c/3  unknown table 0
			0   .   . a    key origin 1
			0   .   . b/3  unknown memory 0 // for a minute
			1m  .   . a/1+ none origin 1
			1h  .   . b/2  key origin 1
			5m  .   . new/1 key table 0
			25h .   . a/1  unknown origin 1 // nothing is cached any more
			0   .   . new  key origin 1
			0   .   . a    key table 0`,
		"other spellings without the table": `
			0  key . new   key origin 1
			1h .   x new/1 key stale 1 table-failed
			5m .   x new/1 key stale 1 table-failed
			5m .   x new/1 key stale 1 table-failed
			stored a key until 24h0m0s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newFleet(t).play(history)
		})
	}
}
