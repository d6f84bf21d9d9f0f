package dev.edgedec.demo

import android.content.ContentResolver
import android.net.Uri
import android.provider.DocumentsContract
import android.provider.DocumentsContract.Document
import dev.edgedec.core.Source
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream

/** A bundle in a folder that the user picked, which may be on a card, a stick or a server. */
class TreeSource(private val resolver: ContentResolver, private val tree: Uri) : Source {
    private class Found(val id: String, val bytes: Long?)

    private val folders = HashMap<String, Map<String, Found>>()

    /** Name of the folder; providers put it at the end of the document's id, as `primary:models/demo`. */
    val name: String
        get() = DocumentsContract.getTreeDocumentId(tree).substringAfterLast('/').substringAfterLast(':').ifEmpty { "bundle" }

    override fun open(name: String): InputStream = asking {
        resolver.openInputStream(DocumentsContract.buildDocumentUriUsingTree(tree, find(name).id))
            ?: throw FileNotFoundException(name)
    }

    override fun size(name: String): Long? = asking { find(name).bytes }

    private fun find(name: String): Found {
        val root = Found(DocumentsContract.getTreeDocumentId(tree), null)
        return name.split('/').fold(root) { folder, part ->
            folders.getOrPut(folder.id) { children(folder.id) }[part] ?: throw FileNotFoundException(name)
        }
    }

    private fun children(folder: String): Map<String, Found> {
        val uri = DocumentsContract.buildChildDocumentsUriUsingTree(tree, folder)
        val rows = resolver.query(uri, COLUMNS, null, null, null) ?: throw IOException("the folder cannot be listed")
        return rows.use {
            val found = HashMap<String, Found>()
            while (rows.moveToNext()) {
                found[rows.getString(1)] = Found(rows.getString(0), if (rows.isNull(2)) null else rows.getLong(2))
            }
            found
        }
    }

    /** A provider runs in another app, whose errors come here as exceptions of all kinds. */
    private fun <T> asking(ask: () -> T): T = try {
        ask()
    } catch (error: IllegalArgumentException) {
        throw IOException(error.message, error)
    } catch (error: IllegalStateException) {
        throw IOException(error.message, error)
    } catch (error: UnsupportedOperationException) {
        throw IOException(error.message, error)
    }

    private companion object {
        val COLUMNS = arrayOf(Document.COLUMN_DOCUMENT_ID, Document.COLUMN_DISPLAY_NAME, Document.COLUMN_SIZE)
    }
}
