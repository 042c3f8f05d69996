package keys

import "math/big"

// hasROCAFingerprint reports whether n has the form of a modulus that the library of CVE-2017-15361 generates. Its
// primes are k*M + (65537^a mod M) for a product M of the first primes, so n modulo each of these small primes is a
// power of 65537. A sound modulus has this form with a probability of about 2^-27 (Nemec et al., "The Return of
// Coppersmith's Attack", CCS 2017, section 4).
func hasROCAFingerprint(n *big.Int) bool {
	var residue big.Int
	for _, p := range rocaPrimes {
		r := residue.Mod(n, big.NewInt(p)).Int64()
		power := int64(1)
		for i := int64(1); i < p && power != r; i++ { // the powers repeat after at most p-1
			power = power * 65537 % p
		}
		if power != r {
			return false
		}
	}
	return true
}

// rocaPrimes are the odd primes in M for the smallest keys of that library. They are in M for all its keys.
var rocaPrimes = []int64{
	3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73,
	79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
}
