# A member of a record begins after a comma, and has no comma in it. Base64url has no padding.
field() { tr ',' '\n' < "$file" | sed -n 's/^"'"$1"'":"\(.*\)".*$/\1/p'; }
padded() { v=$(field "$1" | tr '_-' '/+'); while [ $((${#v} % 4)) != 0 ]; do v="$v="; done; printf %s "$v"; }
bytes() { padded "$1" | openssl base64 -d -A; }
number() { bytes "$1" | od -An -v -tx1 | tr -d ' \n'; }
if [ "$(field signature)" ]; then
  { bytes payload; printf '\n%s\n%s' "$(field timestamp)" "$(field keyId)"; } > "$file.signed"
  bytes signature > "$file.signature"
  # The key is the SubjectPublicKeyInfo of RFC 3279, section 2.3.1.
  printf '%s\n' asn1=SEQUENCE:key '[key]' a=SEQUENCE:rsa b=BITWRAP,SEQUENCE:numbers '[rsa]' a=OID:rsaEncryption \
    b=NULL '[numbers]' n=INTEGER:0x$(number n) e=INTEGER:0x$(number e) > "$file.asn1"
  openssl asn1parse -genconf "$file.asn1" -noout -out "$file.der"
  openssl pkey -pubin -inform DER -in "$file.der" -out "$file.pem"
  openssl dgst -sha256 -verify "$file.pem" -signature "$file.signature" "$file.signed"
fi
chain=$(tr '{' '\n' < "$file" | sed -n 's/^"digest.*"chain":\["\([^]]*\)"\].*/\1/p')
if [ "$chain" ]; then
  printf '%b' "$chain" | sed 's/","//' > "$file.chain"
  openssl verify -purpose sslclient -attime $acceptedAt -CAfile "$file.chain" "$file.chain"
fi
