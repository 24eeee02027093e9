//! Settings of a statically linked C library.
//!
//! For names of hosts and users, glibc loads the plugins that `/etc/nsswitch.conf` lists, also into static programs. They need the glibc of the
//! host. In a program with another version the C library aborts the process, for example on a host with `libnss_myhostname`. The services `files`
//! and `dns` are part of the program.

/// Limits name lookups to the services that are part of the program. Call it at the start of the program, before other threads exist.
///
/// It does nothing in a dynamically linked program, which uses the C library of its host.
///
/// # Panics
///
/// If the C library does not have these databases.
pub fn limit_name_services() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
        // SAFETY: both arguments are static strings that end with a zero byte, and the function keeps no pointer to them.
        let code = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        assert_eq!(code, 0, "the C library has no database {database:?}");
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
unsafe extern "C" {
    /// `<nss.h>`: overrides `/etc/nsswitch.conf` for one database of this process.
    fn __nss_configure_lookup(
        database: *const std::ffi::c_char,
        services: *const std::ffi::c_char,
    ) -> std::ffi::c_int;
}
