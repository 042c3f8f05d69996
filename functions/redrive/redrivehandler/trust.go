package redrivehandler

import (
	"payhook.example/shared/clientcert"
	"payhook.example/shared/wire"
)

// certificates returns the report on the client certificates that the webhook function accepts: only the mechanism if
// none is required.
func (h *Handler) certificates() *wire.Certificates {
	out := &wire.Certificates{Authentication: h.conf.Authentication, RevokedKeys: h.conf.RevokedKeys}
	m := h.conf.MTLS
	if m == nil {
		return out
	}
	out.DaysLeft, out.Subjects, out.Pins = h.daysLeft(), m.Policy.Subjects, m.Policy.Pins
	for _, c := range m.Truststore {
		out.CAs = append(out.CAs, wire.CA{Subject: clientcert.Subject(c), Issuer: clientcert.Issuer(c),
			Fingerprint: clientcert.Fingerprint(c), Pin: clientcert.PinOf(c), NotAfter: c.NotAfter.UTC()})
	}
	return out
}

// daysLeft returns the number of days until the first CA of the truststore expires.
func (h *Handler) daysLeft() float64 { return clientcert.DaysLeft(h.conf.MTLS.Truststore, h.now()) }
