package dev.edgedec.demo

import android.content.Context
import android.content.SharedPreferences
import android.content.res.AssetManager
import android.os.storage.StorageManager
import dev.edgedec.core.BundleImport
import dev.edgedec.core.Source
import java.io.File
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream
import java.security.MessageDigest

/**
 * The bundles in the app's own files, each in a folder named by its manifest's sha256.
 *
 * @param names what the user knows the bundles by
 */
class Library(private val context: Context, private val names: SharedPreferences) : Shelf {
    private val folder = File(context.filesDir, "bundles")

    override fun bundles(): List<Installed> {
        val found = folder.listFiles { file -> file.isDirectory && File(file, MANIFEST).isFile }.orEmpty()
        return found.map(::installed).sortedWith(compareBy({ !it.demo }, { it.name }))
    }

    override fun demo(): Incoming? {
        val source = AssetSource(context.assets, DEMO)
        val wanted = try {
            source.open(MANIFEST).use { sha256(it.readBytes()) }
        } catch (_: IOException) {
            return null
        }
        return if (File(folder, wanted).exists()) null else Incoming(context.getString(R.string.bundle_demo), source, demo = true)
    }

    // One at a time: an import of a closed activity may still be ending.
    @Synchronized
    override fun copy(incoming: Incoming, watch: Watch): Installed {
        val copied = BundleImport(folder, ::freeBytes).copy(incoming.source, watch::onProgress) { watch.cancelled }
        val before = names.getString(DEMO, null)
        val edit = names.edit()
        if (incoming.demo) {
            edit.putString(DEMO, copied.name)
            // An update of the app brought another one.
            if (before != null && before != copied.name) File(folder, before).deleteRecursively()
        } else if (copied.name != before) {
            edit.putString(copied.name, incoming.name)
        }
        edit.apply()
        return installed(copied)
    }

    override fun remove(bundle: Installed) {
        bundle.folder.deleteRecursively()
        names.edit().remove(bundle.folder.name).apply()
    }

    private fun installed(folder: File): Installed {
        val demo = folder.name == names.getString(DEMO, null)
        val name = if (demo) context.getString(R.string.bundle_demo) else names.getString(folder.name, null)
        val bytes = folder.walk().filter { it.isFile }.sumOf { it.length() }
        return Installed(name ?: folder.name.take(SHORT), folder, bytes, demo)
    }

    /** Space that Android would make for the app by clearing caches is free as well. */
    private fun freeBytes(): Long = try {
        context.getSystemService(StorageManager::class.java).getAllocatableBytes(StorageManager.UUID_DEFAULT)
    } catch (_: IOException) {
        context.filesDir.usableSpace
    }

    private fun sha256(data: ByteArray): String =
        MessageDigest.getInstance("SHA-256").digest(data).joinToString("") { "%02x".format(it) }

    private companion object {
        const val MANIFEST = "manifest.json"
        const val DEMO = "demo"
        const val SHORT = 8
    }
}

/** A bundle that the app brings. */
class AssetSource(private val assets: AssetManager, private val folder: String) : Source {
    override fun open(name: String): InputStream = assets.open("$folder/$name")

    override fun size(name: String): Long? = try {
        assets.openFd("$folder/$name").use { it.length }
    } catch (_: FileNotFoundException) {
        // A compressed file has no place of its own in the APK; if it is missing, opening says so.
        null
    }
}
