use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Cidr, CidrError> {
    text.parse()
}

fn peer(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn sec03_mapped_ranges_are_refused_and_mapped_peers_are_their_ipv4_address() {
    for text in ["::ffff:0:0/96", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1"] {
        assert!(matches!(parse(text), Err(CidrError::Mapped(_))), "{text}");
    }
    let ten = parse("10.0.0.0/8").unwrap();
    assert!(ten.contains(peer("::ffff:10.1.2.3")));
    assert!(!ten.contains(peer("::ffff:8.8.8.8")) && !ten.contains(peer("8.8.8.8")));
    assert!(!Cidr::ANY_V6.contains(peer("8.8.8.8")));
}

#[test]
fn sec04_host_bits_are_refused_with_the_range_that_was_meant() {
    let fault = parse("192.0.2.1/24").unwrap_err();
    assert_eq!(
        fault.to_string(),
        "`192.0.2.1/24` has host bits set; write `192.0.2.0/24` if that is what you mean"
    );
    assert!(parse("2001:db8::1/32").is_err());
}

#[test]
fn sec05_lists_may_have_blanks_around_entries_and_nowhere_else() {
    let set = CidrSet::parse_list(" 10.0.0.0/8 , 192.168.0.0/16,").unwrap();
    assert_eq!(set.to_string(), "10.0.0.0/8,192.168.0.0/16");
    for text in [
        "10.0.0.0/ 24",
        "10.0.0.0/+24",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0/8",
        "10.0.0.0/8/8",
        "fe80::1%eth0/64",
        "::/129",
        "::/999",
        "x",
        "/8",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!(
        CidrSet::parse_list("x,10.0.0.0/8,y").unwrap_err().len(),
        2,
        "all are told"
    );
    assert!(CidrSet::parse_list("").unwrap().is_empty());
}

#[test]
fn sec06_an_address_alone_is_a_range_of_one() {
    assert_eq!(parse("203.0.113.7").unwrap().to_string(), "203.0.113.7/32");
    assert_eq!(parse("2001:db8::1").unwrap().to_string(), "2001:db8::1/128");
    assert!(parse("0.0.0.0/0").unwrap() == Cidr::ANY_V4 && parse("::/0").unwrap() == Cidr::ANY_V6);
    assert!(Cidr::ANY_V4.contains(peer("255.255.255.255")));
    assert!(!CidrSet::default().contains(peer("127.0.0.1")));
}

proptest! {
    #[test]
    fn a_range_holds_what_shares_its_prefix(net in any::<u32>(), prefix in 0..=32u8, other in any::<u32>()) {
        let mask = mask_v4(prefix);
        let text = format!("{}/{prefix}", Ipv4Addr::from(net & mask));
        let range = parse(&text).unwrap();
        prop_assert_eq!(range.contains(Ipv4Addr::from(other).into()), other & mask == net & mask);
        prop_assert_eq!(range.to_string(), text);
    }
}
