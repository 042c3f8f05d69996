package payhook

import (
	"slices"
	"testing"
)

// Parked deliveries were not published, so they do not expire by default.
func TestObjectsExpireAsConfigured(t *testing.T) {
	for _, c := range []struct {
		settings        map[string]any
		claims, parking any // days
	}{
		{nil, 365.0, nil},
		{map[string]any{"claimRetention": "never", "parkedRetention": "3653d"}, nil, 3653.0},
	} {
		tm := payhook(t, c.settings)
		for name, want := range map[string]any{"Claims": c.claims, "Parking": c.parking} {
			var ends, recoverable []any
			short := name != "Parking"
			for _, rule := range at(tm.get(t, name, "AWS::S3::Bucket").Properties, "LifecycleConfiguration",
				"Rules").([]any) {
				// Rejected requests end after a day, with every setting.
				if name == "Parking" && at(rule, "Prefix") == "captured/" && at(rule, "Status") == "Enabled" &&
					at(rule, "ExpirationInDays") == 1.0 &&
					at(rule, "NoncurrentVersionExpiration", "NoncurrentDays") == 1.0 {
					short = true
					continue
				}
				if at(rule, "Status") != "Enabled" || at(rule, "Prefix") != nil {
					t.Errorf("%s: %v", name, rule)
				}
				if days := at(rule, "ExpirationInDays"); days != nil {
					ends = append(ends, days)
				}
				if days := at(rule, "NoncurrentVersionExpiration", "NoncurrentDays"); days != nil {
					recoverable = append(recoverable, days)
				}
			}
			if !short {
				t.Errorf("%s: rejected requests do not end after a day", name)
			}
			if want == nil && ends != nil || want != nil && !slices.Equal(ends, []any{want}) {
				t.Errorf("%s with %v: objects end after %v days, want %v", name, c.settings, ends, want)
			}
			if !slices.Equal(recoverable, []any{30.0}) {
				t.Errorf("%s: a version that is replaced or deleted ends after %v days", name, recoverable)
			}
		}
	}
}
