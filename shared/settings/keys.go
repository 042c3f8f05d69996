package settings

import "strings"

// OfCDK reports whether a context key is one of the CDK: feature flags
// (@aws-cdk/…), lookups (availability-zones:…), information about the invocation
// (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. Those of a local run
// (payhook:local) are not settings for users either. All other keys must be settings.
func OfCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// Unknown returns the problem of a key that is none of the settings, with the one that was
// probably meant.
func Unknown(key string, among []*Setting) string {
	var keys []string
	for _, s := range among {
		keys = append(keys, s.Key)
	}
	return "no such setting" + DidYouMean(key, keys)
}

// DidYouMean returns the question whether the word that is most similar to a text was meant, and
// "" if none is similar: each differs in more than a third of the text. Case does not matter.
func DidYouMean(text string, words []string) (question string) {
	least := len(text)/3 + 1
	for _, word := range words {
		if d := distance(strings.ToLower(text), strings.ToLower(word)); d < least {
			question, least = "; did you mean "+word+"?", d
		}
	}
	return question
}

// distance returns how many bytes are inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
