//! The table of rules: what a strict intermediary must refuse, and what it must not.

use warmpath_parser::Malformed::{self, *};
use warmpath_parser::http1::Framing;

/// What the bytes are given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A request head.
    Request,
    /// A response head to a GET.
    Response,
    /// A chunked body.
    Chunks,
}

/// What must come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accept(Framing),
    Refuse(Malformed),
}

pub struct Case {
    pub name: &'static str,
    pub section: &'static str,
    pub side: Side,
    pub bytes: &'static [u8],
    pub expected: Verdict,
}

const NONE: Verdict = Verdict::Accept(Framing::None);
const CHUNKED: Verdict = Verdict::Accept(Framing::Chunked);
const UNTIL_CLOSE: Verdict = Verdict::Accept(Framing::UntilClose);

const fn length(bytes: u64) -> Verdict {
    Verdict::Accept(Framing::Length(bytes))
}

const fn no(fault: Malformed) -> Verdict {
    Verdict::Refuse(fault)
}

macro_rules! table {
    ($($side:ident $name:ident $section:literal $bytes:expr => $expected:expr;)+) => {
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            section: $section,
            side: Side::$side,
            bytes: $bytes,
            expected: $expected,
        }),+];

        $(#[test]
        fn $name() {
            let case = CASES.iter().find(|case| case.name == stringify!($name)).unwrap();
            assert_eq!(crate::verdict(case.side, case.bytes), case.expected);
        })+
    };
}

table! {
    // Accepted: the shapes that strictness must not hurt.
    Request plain_get "9112 3" b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" => NONE;
    Request one_leading_empty_line "9112 2.2" b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" => NONE;
    Request value_without_space "9112 5" b"GET / HTTP/1.1\r\nHost:a\r\n\r\n" => NONE;
    Request value_with_tabs_around "9112 5" b"GET / HTTP/1.1\r\nHost:\t a \t\r\n\r\n" => NONE;
    Request empty_value "9110 5.5" b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n" => NONE;
    Request obs_text_in_value "9110 5.5" b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe4\xff\r\n\r\n" => NONE;
    Request unusual_token_name "9110 5.6.2" b"GET / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~9: x\r\n\r\n" => NONE;
    Request unknown_method "9110 9.1" b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n" => NONE;
    Request http_10_without_host "9112 3.2" b"GET / HTTP/1.0\r\n\r\n" => NONE;
    Request absolute_form "9112 3.2.2" b"GET http://b:80/p?q HTTP/1.1\r\nHost: a\r\n\r\n" => NONE;
    Request asterisk_form "9112 3.2.4" b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n" => NONE;
    Request ipv6_host "9110 7.2" b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n" => NONE;
    Request length_zero "9110 8.6" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n" => length(0);
    Request length_with_zeros "9110 8.6" b"POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 007\r\n\r\n" => length(7);
    Request length_at_64_bits "9110 8.6"
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n" => length(u64::MAX);
    Request chunked "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" => CHUNKED;
    Request expect_continue "9110 10.1.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n" => length(3);
    Request connection_list "9110 7.6.1"
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, ,X-Hop\r\nX-Hop: 1\r\n\r\n" => NONE;
    // (1) Host.
    Request host_missing "9112 3.2" b"GET / HTTP/1.1\r\nX: a\r\n\r\n" => no(HostMissing);
    Request host_twice "9112 3.2" b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" => no(HostTwice);
    Request host_twice_in_http_10 "9112 3.2" b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n" => no(HostTwice);
    Request host_empty "9112 3.2" b"GET / HTTP/1.1\r\nHost:\r\n\r\n" => no(HostInvalid);
    Request host_with_path "9112 3.2" b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" => no(HostInvalid);
    Request host_with_space "9112 3.2" b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n" => no(HostInvalid);
    Request host_with_user "9112 3.2" b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n" => no(HostInvalid);
    Request host_list "9112 3.2" b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n" => no(HostInvalid);
    Request host_bad_port "9112 3.2" b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n" => no(HostInvalid);
    Request host_bad_literal "9112 3.2" b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n" => no(HostInvalid);
    Request absolute_form_without_host "9112 3.2.2" b"GET http://b/ HTTP/1.1\r\n\r\n" => no(HostMissing);
    // (2) Space before the colon.
    Request space_before_colon "9112 5.1" b"GET / HTTP/1.1\r\nHost : a\r\n\r\n" => no(SpaceBeforeColon);
    Request tab_before_colon "9112 5.1" b"GET / HTTP/1.1\r\nHost\t: a\r\n\r\n" => no(SpaceBeforeColon);
    Request space_in_coding_name "9112 5.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n" => no(SpaceBeforeColon);
    // (3) obs-fold.
    Request obs_fold_space "9112 5.2" b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n" => no(ObsFold);
    Request obs_fold_tab "9112 5.2" b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n" => no(ObsFold);
    Request obs_fold_in_coding "9112 5.2"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n , gzip\r\n\r\n" => no(ObsFold);
    // (4) Whitespace before the first field.
    Request space_before_first_field "9112 2.2" b"GET / HTTP/1.1\r\n Host: a\r\n\r\n" => no(SpaceBeforeFirstField);
    Request tab_before_first_field "9112 2.2" b"GET / HTTP/1.1\r\n\tHost: a\r\n\r\n" => no(SpaceBeforeFirstField);
    // (5) Line ends.
    Request bare_lf_request_line "9112 2.2" b"GET / HTTP/1.1\nHost: a\r\n\r\n" => no(BareLf);
    Request bare_lf_field_line "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n" => no(BareLf);
    Request bare_lf_blank_line "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\r\n\n" => no(BareLf);
    Request bare_lf_in_name "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\r\nX\n\r\n" => no(BareLf);
    Request bare_cr_in_value "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n" => no(BareCr);
    Request bare_cr_request_line "9112 2.2" b"GET / HTTP/1.1\rHost: a\r\n\r\n" => no(BareCr);
    Request bare_cr_blank_line "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\r\n\rX" => no(BareCr);
    Request cr_cr_lf "9112 2.2" b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n" => no(BareCr);
    Request two_leading_empty_lines "9112 2.2" b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" => no(EmptyLines);
    Request leading_bare_lf "9112 2.2" b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" => no(BareLf);
    // (6) Content-Length.
    Request length_plus "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n" => no(LengthNotDigits);
    Request length_minus "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n" => no(LengthNotDigits);
    Request length_hex "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n" => no(LengthNotDigits);
    Request length_empty "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n" => no(LengthNotDigits);
    Request length_two_words "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n" => no(LengthNotDigits);
    Request length_fraction "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\n" => no(LengthNotDigits);
    Request length_list_unequal "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\n" => no(LengthNotDigits);
    Request length_list_equal "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n" => no(LengthNotDigits);
    Request length_overflow "9110 8.6"
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n" => no(LengthOverflow);
    Request length_twice_unequal "9112 6.3"
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" => no(LengthTwice);
    Request length_twice_equal "9112 6.3"
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n" => no(LengthTwice);
    // (7) Transfer-Encoding.
    Request coding_identity "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n" => no(CodingNotChunked);
    Request coding_xchunked "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" => no(CodingNotChunked);
    Request coding_gzip_alone "9112 6.3" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n" => no(CodingNotChunked);
    Request coding_gzip_chunked "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" => no(CodingUnknown);
    Request coding_unknown_chunked "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow, chunked\r\n\r\n" => no(CodingUnknown);
    Request coding_chunked_twice "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n" => no(ChunkedNotLast);
    Request coding_chunked_first "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n" => no(ChunkedNotLast);
    Request coding_two_lines "9112 6.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" => no(ChunkedNotLast);
    Request coding_two_lines_identity "9112 6.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" => no(ChunkedNotLast);
    Request coding_parameter "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n" => no(CodingSyntax);
    Request coding_quoted "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n" => no(CodingSyntax);
    Request coding_empty "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n" => no(CodingSyntax);
    Request coding_trailing_comma "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n" => no(CodingSyntax);
    Request coding_vertical_tab "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n" => no(ValueByte);
    Request coding_high_byte "9112 6.1" b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \xffchunked\r\n\r\n" => no(CodingSyntax);
    Request coding_with_underscore "9112 11.2"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\n\r\n" => no(NameInDisguise);
    Request length_with_underscore "9112 11.2"
        b"POST / HTTP/1.1\r\nHost: a\r\ncontent_length: 5\r\n\r\n" => no(NameInDisguise);
    // (8) Both.
    Request both_coding_first "9112 6.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" => no(LengthAndCoding);
    Request both_length_first "9112 6.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" => no(LengthAndCoding);
    // (9) HTTP/1.0.
    Request coding_in_http_10 "9112 6.1" b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" => no(CodingInHttp10);
    // (10) Chunks.
    Chunks chunk_plain "9112 7.1" b"5\r\nhello\r\n0\r\n\r\n" => CHUNKED;
    Chunks chunk_extension "9112 7.1.1" b"5;a=\"b c\"\r\nhello\r\n0;x\r\n\r\n" => CHUNKED;
    Chunks chunk_trailer "9112 7.1.2" b"0\r\nX-Sum: 1\r\nServer-Timing: a\r\n\r\n" => CHUNKED;
    Chunks chunk_sixteen_digits "9112 7.1" b"0000000000000001\r\nx\r\n0000000000000000\r\n\r\n" => CHUNKED;
    Chunks chunk_size_not_hex "9112 7.1" b"g\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeEmpty);
    Chunks chunk_size_empty "9112 7.1" b"\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeEmpty);
    Chunks chunk_size_plus "9112 7.1" b"+5\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeEmpty);
    Chunks chunk_size_minus "9112 7.1" b"-5\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeEmpty);
    Chunks chunk_size_leading_space "9112 7.1" b" 5\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeEmpty);
    Chunks chunk_size_trailing_space "9112 7.1" b"5 \r\nhello\r\n0\r\n\r\n" => no(ChunkSizeByte);
    Chunks chunk_size_prefix "9112 7.1" b"0x5\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeByte);
    Chunks chunk_size_underscore "9112 7.1" b"1_0\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeByte);
    Chunks chunk_size_comma "9112 7.1" b"5,\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeByte);
    Chunks chunk_size_seventeen_digits "9112 7.1" b"00000000000000005\r\nhello\r\n0\r\n\r\n" => no(ChunkSizeTooLong);
    Chunks chunk_size_bare_lf "9112 7.1" b"5\nhello\r\n0\r\n\r\n" => no(BareLf);
    Chunks chunk_size_bare_cr "9112 7.1" b"5\rhello\r\n0\r\n\r\n" => no(BareCr);
    Chunks chunk_extension_bare_lf "9112 7.1.1" b"5;a\nhello\r\n0\r\n\r\n" => no(BareLf);
    Chunks chunk_extension_bare_cr "9112 7.1.1" b"5;a\rX\nhello\r\n0\r\n\r\n" => no(BareCr);
    Chunks chunk_extension_nul "9112 7.1.1" b"5;a\0\r\nhello\r\n0\r\n\r\n" => no(ChunkExtensionByte);
    Chunks chunk_data_without_crlf "9112 7.1" b"5\r\nhello0\r\n\r\n" => no(ChunkDataEnd);
    Chunks chunk_data_bare_lf "9112 7.1" b"5\r\nhello\n0\r\n\r\n" => no(ChunkDataEnd);
    Chunks chunk_data_bare_cr "9112 7.1" b"5\r\nhello\r0\r\n\r\n" => no(ChunkDataEnd);
    Chunks trailer_bare_lf "9112 7.1.2" b"0\r\nX: a\n\r\n" => no(BareLf);
    Chunks trailer_blank_bare_lf "9112 7.1.2" b"0\r\n\n" => no(BareLf);
    Chunks trailer_obs_fold "9112 5.2" b"0\r\nX: a\r\n b\r\n\r\n" => no(ObsFold);
    Chunks trailer_space_before_colon "9112 5.1" b"0\r\nX : a\r\n\r\n" => no(SpaceBeforeColon);
    Chunks trailer_without_colon "9112 5.1" b"0\r\nX\r\n\r\n" => no(NameNotToken);
    Chunks trailer_nul "9110 5.5" b"0\r\nX: \0\r\n\r\n" => no(ValueByte);
    Chunks trailer_content_length "9110 6.5.1" b"0\r\nContent-Length: 5\r\n\r\n" => no(TrailerForbidden);
    Chunks trailer_transfer_encoding "9110 6.5.1" b"0\r\nTRANSFER-ENCODING: chunked\r\n\r\n" => no(TrailerForbidden);
    Chunks trailer_host "9110 6.5.1" b"0\r\nHost: a\r\n\r\n" => no(TrailerForbidden);
    Chunks trailer_authorization "9110 6.5.1" b"0\r\nAuthorization: x\r\n\r\n" => no(TrailerForbidden);
    // (11) Names, values, methods.
    Request nul_in_value "9110 5.5" b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n" => no(ValueByte);
    Request del_in_value "9110 5.5" b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n" => no(ValueByte);
    Request control_in_value "9110 5.5" b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n" => no(ValueByte);
    Request nul_in_name "9110 5.1" b"GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n" => no(NameNotToken);
    Request name_empty "9110 5.1" b"GET / HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n" => no(NameNotToken);
    Request name_with_slash "9110 5.1" b"GET / HTTP/1.1\r\nHost: a\r\nX/Y: a\r\n\r\n" => no(NameNotToken);
    Request name_with_high_byte "9110 5.1" b"GET / HTTP/1.1\r\nHost: a\r\nX\xe4: a\r\n\r\n" => no(NameNotToken);
    Request line_without_colon "9112 5" b"GET / HTTP/1.1\r\nHost: a\r\nXY\r\n\r\n" => no(NameNotToken);
    Request method_with_slash "9110 9.1" b"G/T / HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodNotToken);
    Request method_empty "9112 3" b" / HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodNotToken);
    Request method_high_byte "9110 9.1" b"G\xcbT / HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodNotToken);
    Request method_tab "9112 3" b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodNotToken);
    Request method_long "9112 3" b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH / HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodTooLong);
    Request tls_hello "9112 3" b"\x16\x03\x01\x02\x00\x01\x00" => no(MethodNotToken);
    Request connection_not_token "9110 7.6.1" b"GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n" => no(ConnectionSyntax);
    Request connection_names_length "9110 7.6.1"
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 5\r\n\r\n" => no(ConnectionNamesEndToEnd);
    Request connection_names_authorization "9110 7.6.1"
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, authorization\r\n\r\n" => no(ConnectionNamesEndToEnd);
    Request expect_other "9110 10.1.1" b"GET / HTTP/1.1\r\nHost: a\r\nExpect: cake\r\n\r\n" => no(ExpectUnknown);
    // (12) Targets.
    Request target_two_spaces "9112 3" b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetEmpty);
    Request target_space_inside "9112 3.2" b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request target_space_after "9112 3" b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request target_tab "9112 3" b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetByte);
    Request target_not_ascii "9112 3.2" b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetByte);
    Request target_control "9112 3.2" b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetByte);
    Request target_fragment "9112 3.2" b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetFragment);
    Request target_relative "9112 3.2" b"GET a HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetForm);
    Request target_asterisk_get "9112 3.2.4" b"GET * HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetForm);
    Request target_authority_get "9112 3.2.3" b"GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetForm);
    Request target_other_scheme "9112 3.2.2" b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetForm);
    Request target_empty_authority "9112 3.2.2" b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetAuthority);
    Request target_user_information "9112 3.2.2" b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n" => no(TargetAuthority);
    Request method_connect "9110 9.3.6" b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n" => no(MethodConnect);
    Request method_trace "9110 9.3.8" b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n" => no(MethodTrace);
    // (13) Versions.
    Request version_absent "9112 2.3" b"GET /\r\n\r\n" => no(VersionMalformed);
    Request version_lower_case "9112 2.3" b"GET / http/1.1\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request version_garbage "9112 2.3" b"GET / HTTP/1.1x\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request version_two_digits "9112 2.3" b"GET / HTTP/1.10\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request version_no_minor "9112 2.3" b"GET / HTTP/1\r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request version_trailing_space "9112 3" b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n" => no(VersionMalformed);
    Request version_12 "9110 15.6.6" b"GET / HTTP/1.2\r\nHost: a\r\n\r\n" => no(VersionUnsupported);
    Request version_09 "9110 15.6.6" b"GET / HTTP/0.9\r\nHost: a\r\n\r\n" => no(VersionUnsupported);
    Request version_2 "9110 15.6.6" b"GET / HTTP/2.0\r\nHost: a\r\n\r\n" => no(VersionUnsupported);
    Request http2_preface "9113 3.4" b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" => no(Http2Preface);
    // Responses.
    Response response_length "9112 6.3" b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" => length(5);
    Response response_until_close "9112 6.3" b"HTTP/1.1 200 OK\r\n\r\n" => UNTIL_CLOSE;
    Response response_http_10 "9112 6.3" b"HTTP/1.0 200 OK\r\n\r\n" => UNTIL_CLOSE;
    Response response_chunked "9112 6.3" b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" => CHUNKED;
    Response response_no_reason "9112 4" b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n" => length(0);
    Response response_empty_reason "9112 4" b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n" => length(0);
    Response response_100 "9110 15.2" b"HTTP/1.1 100 Continue\r\n\r\n" => NONE;
    Response response_103 "9110 15.2" b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" => NONE;
    Response response_204 "9110 15.3.5" b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n" => NONE;
    Response response_304 "9110 15.4.5" b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n" => NONE;
    Response response_101 "9110 15.2.2" b"HTTP/1.1 101 Switching Protocols\r\n\r\n" => no(SwitchingProtocols);
    Response response_both "9112 6.3"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" => no(LengthAndCoding);
    Response response_coding_gzip "9112 6.3" b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" => no(CodingNotChunked);
    Response response_coding_in_http_10 "9112 6.1" b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" => no(CodingInHttp10);
    Response response_length_twice "9112 6.3"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n" => no(LengthTwice);
    Response response_status_two_digits "9112 4" b"HTTP/1.1 20 OK\r\n\r\n" => no(StatusMalformed);
    Response response_status_four_digits "9112 4" b"HTTP/1.1 2000 OK\r\n\r\n" => no(StatusMalformed);
    Response response_status_600 "9110 15" b"HTTP/1.1 600 X\r\n\r\n" => no(StatusOutOfRange);
    Response response_status_099 "9110 15" b"HTTP/1.1 099 X\r\n\r\n" => no(StatusOutOfRange);
    Response response_version "9112 2.3" b"HTTQ/1.1 200 OK\r\n\r\n" => no(VersionMalformed);
    Response response_version_2 "9112 2.3" b"HTTP/2.0 200 OK\r\n\r\n" => no(VersionUnsupported);
    Response response_bare_lf "9112 2.2" b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n" => no(BareLf);
    Response response_reason_nul "9112 4" b"HTTP/1.1 200 \0\r\n\r\n" => no(ValueByte);
    Response response_obs_fold "9112 5.2" b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n" => no(ObsFold);
    Response response_space_before_colon "9112 5.1" b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n" => no(SpaceBeforeColon);
    Response response_leading_empty_line "9112 2.2" b"\r\nHTTP/1.1 200 OK\r\n\r\n" => no(VersionMalformed);
}
